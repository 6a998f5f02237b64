// Package configs holds the files an operator may copy and edit, embedded as defaults: the settings, the pin of the agent's
// CLI, prices, the agent home and the table of apps. It reads no file of the machine and decides nothing.
package configs

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"

	"go.yaml.in/yaml/v3"
)

var (
	//go:embed all:agent-home
	agentHome embed.FS // with its dot-folder, which a plain pattern would leave out

	//go:embed apps/*.yaml
	apps embed.FS

	//go:embed pilder.yaml
	settings []byte

	//go:embed managed-settings.json
	managedSettings []byte

	//go:embed claude-cli.json
	claudeCLI []byte

	//go:embed prices.yaml
	prices []byte
)

// AgentHome returns the embedded agent home: CLAUDE.md and .claude with rules and skills. It is the same for all runs and
// must be mounted where no run can write. os.CopyFS puts it into a folder.
func AgentHome() fs.FS { return sub(agentHome, "agent-home") }

// Apps returns the embedded tables of apps, one YAML file per app.
func Apps() fs.FS { return sub(apps, "apps") }

// Settings returns the commented pilder.yaml with every key at its default.
func Settings() []byte { return append([]byte(nil), settings...) }

// ManagedSettings returns the CLI's /etc/claude-code/managed-settings.json: the settings no file of a run can override. Its
// deny list is the second wall behind the command line and the gateway, not the first.
func ManagedSettings() []byte { return append([]byte(nil), managedSettings...) }

// Pin is the exact build of the agent's CLI this pilder was tested with.
type Pin struct {
	Package      string `json:"package"` // on npm
	Version      string `json:"version"`
	Integrity    string `json:"integrity"`     // of the package: "sha512-" and base64, as npm writes it
	BinarySHA256 string `json:"binary_sha256"` // of the file "claude" inside it, hex
	License      string `json:"license"`       // one line for the person who fetches it
}

// CLI returns the pin. It panics when the embedded file is broken, which its test rules out.
func CLI() Pin {
	var p Pin
	if err := json.Unmarshal(claudeCLI, &p); err != nil {
		panic(fmt.Sprintf("embedded claude-cli.json: %v", err))
	}
	return p
}

// Price is what a million tokens of a model cost, in US dollars.
type Price struct {
	Prefix       string  `yaml:"prefix"` // of the model's full name; the longest one that fits decides
	Input        float64 `yaml:"input"`
	Output       float64 `yaml:"output"`
	CacheWrite   float64 `yaml:"cache_write"`    // living 5 minutes
	CacheWrite1h float64 `yaml:"cache_write_1h"` // living one hour
	CacheRead    float64 `yaml:"cache_read"`
	LongAbove    int64   `yaml:"long_above"` // tokens of prompt, above which all of these are multiplied; 0: never
	LongTimes    float64 `yaml:"long_times"`
}

// Prices returns the embedded price list. It panics when the embedded file is broken, which its test rules out.
func Prices() []Price {
	var file struct {
		Prices []Price `yaml:"prices"`
	}
	if err := yaml.Unmarshal(prices, &file); err != nil {
		panic(fmt.Sprintf("embedded prices.yaml: %v", err))
	}
	return file.Prices
}

// sub cannot fail: the folders are the ones embedded above.
func sub(files embed.FS, folder string) fs.FS {
	f, err := fs.Sub(files, folder)
	if err != nil {
		panic(err)
	}
	return f
}
