package pipedream

import "time"

// Plant puts words of somebody else into an account, as a mail that arrived, an invitation or a shared note would. It gives
// false for an account that cannot take any.
func (s *Server) Plant(apn, words string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	for _, a := range s.accounts {
		switch {
		case a.ID != apn:
		case a.world.calendar != nil:
			c := a.world.calendar
			e := c.fresh(now)
			e["summary"], e["description"] = "Revisión", words
			e["start"], e["end"] = moment(now), moment(now.Add(30*time.Minute))
			c.events[c.owner] = append(c.events[c.owner], e)
			return true
		case a.world.mail != nil:
			a.world.mail.add(&mail{from: "Proveedor <hola@proveedor.example>", to: a.world.mail.owner, subject: "Revisión", body: words, labels: []string{"INBOX"}, at: now})
			return true
		case a.world.notes != nil:
			n := a.world.notes
			n.pages = append(n.pages, &page{id: n.next(), title: "Revisión", edited: now, blocks: []object{n.block(words)}})
			return true
		}
	}
	return false
}
