package main

import (
	"context"
	"encoding/json"
	"fmt"

	"pilder/gateway"
	"pilder/gateway/native"
	"pilder/gateway/pipedream"
)

// sendMail lets correo_enviar use the mail app's own action, which no agent may list or call: it is the same connector
// under the house tool's rules.
func sendMail(apps *pipedream.Connector) func(context.Context, gateway.Call, native.Mail) (gateway.Result, error) {
	return func(ctx context.Context, c gateway.Call, m native.Mail) (gateway.Result, error) {
		props := map[string]any{"to": m.To, "subject": m.Subject, "body": m.Body, "bodyType": "plaintext"}
		if len(m.CC) > 0 {
			props["cc"] = m.CC
		}
		if len(m.BCC) > 0 {
			props["bcc"] = m.BCC
		}
		args, err := json.Marshal(props)
		if err != nil {
			return gateway.Result{}, fmt.Errorf("wording mail: %w", err)
		}
		c.Tool, c.Args = "gmail-send-email", args
		return apps.Call(ctx, c)
	}
}
