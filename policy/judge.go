package policy

// Judge decides by one grant, with the conditions of the company's rules compiled. It is safe for concurrent use.
type Judge struct {
	grant      Grant
	conditions []condition // of grant.Own, in their order
}

// Judge compiles the grant's conditions once, for all decisions of a run. One that does not compile any more holds always.
func (g Grant) Judge() *Judge {
	j := &Judge{grant: g, conditions: make([]condition, len(g.Own))}
	for i, o := range g.Own {
		if o.When != "" {
			j.conditions[i], _ = compile(o.When) // was checked when the policy was set
		}
	}
	return j
}

// Decide is Judge and Decide for one action alone.
func (g Grant) Decide(p Principal, a Action) Decision { return g.Judge().Decide(p, a) }

// Decide says what may happen to an action: nothing for a principal who is nobody, is not the grant's, lacks the scope or
// names something vetoed or not connected; otherwise the strictest effect among the rules that apply, and Allow where none
// does. Of rules with the same effect the first decides, the house's before the company's.
func (j *Judge) Decide(p Principal, a Action) Decision {
	g := j.grant
	if rule := g.refusal(p, a); rule != "" {
		return Decision{Effect: Deny, Rule: rule}
	}
	d := Decision{Effect: Allow}
	for _, r := range g.inForce() {
		if e := stricter(d.Effect, r.Effect); e < d.Effect && r.Applies(g, a) {
			d = Decision{Effect: e, Rule: r.ID}
		}
	}
	speaks := j.own(p, a)
	for i, o := range g.Own {
		if e := stricter(d.Effect, o.Effect); e < d.Effect && speaks(i) {
			d = Decision{Effect: e, Rule: o.ID}
		}
	}
	if d.Effect == Hold && g.SoleAdmin && p.Role == RoleAdmin {
		d.Effect, d.Downgraded = Confirm, true
	}
	return d
}

// own tells of each of the company's rules whether it applies to an action. What conditions read is gathered once, and only
// when one is asked.
func (j *Judge) own(p Principal, a Action) (speaks func(i int) bool) {
	var known map[string]any
	looked := false
	return func(i int) bool {
		o := j.grant.Own[i]
		if !o.names(a) || o.When == "" {
			return o.names(a)
		}
		if !looked {
			known, looked = facts(j.grant, p, a), true
		}
		return j.conditions[i].holds(known)
	}
}

// Voice is what one rule says of an action.
type Voice struct {
	Rule    string `json:"rule"`
	Effect  Effect `json:"effect"`
	Applies bool   `json:"applies"`
}

// Explain gives what every rule says of an action, in the order in which they are asked. What is refused before any rule is
// asked has that one voice.
func (j *Judge) Explain(p Principal, a Action) []Voice {
	g := j.grant
	if rule := g.refusal(p, a); rule != "" {
		return []Voice{{rule, Deny, true}}
	}
	var all []Voice
	for _, r := range g.inForce() {
		all = append(all, Voice{r.ID, r.Effect, r.Applies(g, a)})
	}
	speaks := j.own(p, a)
	for i, o := range g.Own {
		all = append(all, Voice{o.ID, o.Effect, speaks(i)})
	}
	return all
}
