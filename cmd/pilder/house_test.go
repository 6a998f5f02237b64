package main

import (
	"fmt"
	"strings"
	"testing"

	"pilder/gateway"
	"pilder/gateway/pipedream"
	"pilder/policy"
	"pilder/prompt"
	"pilder/store"
)

// TestInstructionsOfTwentyAppsFitAndSayTheCriticalFirst: what a client cuts is the least important.
func TestInstructionsOfTwentyAppsFitAndSayTheCriticalFirst(t *testing.T) {
	var apps []pipedream.App
	var connected []gateway.App
	for i := range 20 {
		name := fmt.Sprintf("Aplicación de prueba %d", i)
		apps = append(apps, pipedream.App{Slug: fmt.Sprintf("app_de_prueba_%d", i), Name: pipedream.Text{ES: name, EN: name},
			Category:    pipedream.Text{ES: fmt.Sprintf("cosa %d", i/2), EN: fmt.Sprintf("thing %d", i/2)},
			Instruction: pipedream.Text{ES: strings.Repeat("sirve para muchísimas cosas ", 6), EN: strings.Repeat("does a lot of things ", 6)}})
		connected = append(connected, gateway.App{Slug: apps[i].Slug, Name: policy.Text(apps[i].Name)})
	}
	for _, lang := range []string{"es", "en"} {
		in := gateway.Instructions{Lang: lang, Apps: connected}
		for i := range 10 {
			in.Preferences = append(in.Preferences, store.Preference{Category: fmt.Sprintf("thing %d", i), App: apps[2*i].Slug})
		}
		got := instructions(apps, nil)(in)
		if len(got) > prompt.MaxInstructions {
			t.Errorf("%s: %d bytes", lang, len(got))
		}
		if !strings.HasPrefix(got, "No invites, env") && !strings.HasPrefix(got, "Do not invite, send") {
			t.Errorf("%s: the critical does not come first:\n%s", lang, got)
		}
		for _, a := range connected {
			if !strings.Contains(got, "\n"+a.Name.In(lang)+" ("+a.Slug+"-*)") {
				t.Errorf("%s: %s has no line:\n%s", lang, a.Name, got)
			}
		}
		if thing := map[string]string{"es": "cosa 0, Aplicación de prueba 0 (su preferida)", "en": "thing 0, Aplicación de prueba 0 (preferred)"}[lang]; !strings.Contains(got, thing) {
			t.Errorf("%s: the preference is missing:\n%s", lang, got)
		}
	}
}
