package pipedream

import (
	"encoding/json"
	"net/http"
)

// control serves what tests of the built binary need: ledger, violations, accounts, faults and a reset, as JSON.
func (s *Server) control(mux *http.ServeMux) {
	show := func(w http.ResponseWriter, v any) { s.write(w, ok(v)) }
	mux.HandleFunc("GET /_sim/ledger", func(w http.ResponseWriter, _ *http.Request) { show(w, append([]Performed{}, s.Ledger()...)) })
	mux.HandleFunc("GET /_sim/violations", func(w http.ResponseWriter, _ *http.Request) { show(w, append([]string{}, s.Violations()...)) })
	mux.HandleFunc("GET /_sim/accounts", func(w http.ResponseWriter, r *http.Request) {
		show(w, append([]Account{}, s.Accounts(r.URL.Query().Get("external_user_id"))...))
	})
	mux.HandleFunc("POST /_sim/accounts", func(w http.ResponseWriter, r *http.Request) {
		var a struct {
			ExternalUser string `json:"external_user_id"`
			App, Name    string
		}
		if json.NewDecoder(r.Body).Decode(&a) != nil || a.ExternalUser == "" || a.App == "" {
			s.write(w, fail(http.StatusBadRequest, "external_user_id and app are required"))
			return
		}
		show(w, object{"id": s.AddAccount(a.ExternalUser, a.App, a.Name)})
	})
	mux.HandleFunc("POST /_sim/faults", func(w http.ResponseWriter, r *http.Request) {
		var f Fault
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			s.write(w, fail(http.StatusBadRequest, err.Error()))
			return
		}
		s.Fault(f)
		s.write(w, answer{status: http.StatusNoContent})
	})
	mux.HandleFunc("DELETE /_sim/faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults()
		s.write(w, answer{status: http.StatusNoContent})
	})
	mux.HandleFunc("POST /_sim/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		s.write(w, answer{status: http.StatusNoContent})
	})
}
