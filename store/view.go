package store

import (
	"context"
	"fmt"
	"time"
)

// RunView is a run for operators: no text of anybody.
type RunView struct {
	ID           RunID          `json:"run"`
	Company      CompanyID      `json:"company"`
	Person       PersonID       `json:"person"`
	Conversation ConversationID `json:"conversation"`
	State        RunState       `json:"state"`
	Warm         bool           `json:"warm"` // its process was ready before the turn came
	Reason       string         `json:"reason,omitempty"`
	Messages     int            `json:"messages"`
	Turns        int            `json:"turns"`
	Tokens       Tokens         `json:"tokens"`
	CostUSD      float64        `json:"cost_usd"`
	Stages       Stages         `json:"ms"`
	Started      time.Time      `json:"started"`
	Ended        time.Time      `json:"ended,omitzero"`
	Calls        []CallView     `json:"calls"`
	Replies      []ReplyView    `json:"replies"`
}

// ReplyView is a reply for operators.
type ReplyView struct {
	ID    ReplyID    `json:"reply"`
	Kind  DraftKind  `json:"kind"`
	Part  int        `json:"part"`
	State ReplyState `json:"state"`
}

// Runs lists the newest runs, newest first; company empty means all. What is merely prepared is not among them.
func (s *Store) Runs(ctx context.Context, company CompanyID, limit int) ([]RunView, error) {
	return s.runViews(ctx, `($1 = '' OR company_id = $1) AND state <> 'prepared' ORDER BY started_ms DESC, run_id LIMIT $2`, company, limit)
}

// RunByID reads one run for an operator.
func (s *Store) RunByID(ctx context.Context, id RunID) (RunView, error) {
	all, err := s.runViews(ctx, `run_id = $1`, id)
	if err == nil && len(all) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return RunView{}, err
	}
	return all[0], nil
}

func (s *Store) runViews(ctx context.Context, where string, args ...any) ([]RunView, error) {
	rows, err := s.reads.QueryContext(ctx, `SELECT run_id, company_id, person_id, conversation_id, state, warm, reason, messages, turns,
			tokens_input, tokens_output, tokens_cache_read, tokens_cache_write, cost_usd, ms_queue, ms_spawn, ms_first_token, ms_tools,
			ms_delivery, ms_total, started_ms, ended_ms
		FROM run WHERE `+where, args...)
	all := []RunView{}
	err = each(rows, err, func(scan func(...any) error) error {
		r := RunView{Calls: []CallView{}, Replies: []ReplyView{}}
		var warm, started, ended int64
		err := scan(&r.ID, &r.Company, &r.Person, &r.Conversation, &r.State, &warm, &r.Reason, &r.Messages, &r.Turns,
			&r.Tokens.Input, &r.Tokens.Output, &r.Tokens.CacheRead, &r.Tokens.CacheWrite, &r.CostUSD, &r.Stages.Queue, &r.Stages.Spawn,
			&r.Stages.FirstToken, &r.Stages.Tools, &r.Stages.Delivery, &r.Stages.Total, &started, &ended)
		r.Warm, r.Started, r.Ended = warm == 1, at(started), at(ended)
		all = append(all, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading runs: %w", err)
	}
	byID := map[RunID]*RunView{}
	ids := make([]string, len(all))
	for i := range all {
		byID[all[i].ID], ids[i] = &all[i], string(all[i].ID)
	}
	if err := s.catchUp(ctx); err != nil {
		return nil, fmt.Errorf("reading calls: %w", err)
	}
	calls, err := runCalls(ctx, s.reads, s.d.in("run_id", 1), s.d.list(ids))
	if err != nil {
		return nil, err
	}
	for _, c := range calls {
		byID[c.run].Calls = append(byID[c.run].Calls, c.CallView)
	}
	rows, err = s.reads.QueryContext(ctx, `SELECT run_id, reply_id, kind, part, state FROM reply
		WHERE `+s.d.in("run_id", 1)+` ORDER BY group_ordinal, part`, s.d.list(ids))
	err = each(rows, err, func(scan func(...any) error) error {
		var run RunID
		var r ReplyView
		if err := scan(&run, &r.ID, &r.Kind, &r.Part, &r.State); err != nil {
			return err
		}
		byID[run].Replies = append(byID[run].Replies, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the replies of runs: %w", err)
	}
	return all, nil
}

// runCall is a call with the run it belongs to.
type runCall struct {
	CallView
	run RunID
}

// runCalls reads calls in the order they were begun; where is a condition on call.
func runCalls(ctx context.Context, q queryer, where string, args ...any) ([]runCall, error) {
	rows, err := q.QueryContext(ctx, `SELECT call_id, run_id, tool, app, class, decision, rule, outcome, code, begun_ms, ended_ms
		FROM call WHERE `+where+` ORDER BY begun_ms, call_id`, args...)
	var all []runCall
	err = each(rows, err, func(scan func(...any) error) error {
		var c runCall
		var decision string
		var begun, ended int64
		if err := scan(&c.ID, &c.run, &c.Tool, &c.App, &c.Class, &decision, &c.Rule, &c.Outcome, &c.Code, &begun, &ended); err != nil {
			return err
		}
		if err := c.Decision.UnmarshalText([]byte(decision)); err != nil {
			return fmt.Errorf("call %s: %w", c.ID, err)
		}
		c.Begun = at(begun)
		if ended > 0 {
			c.MS = ended - begun
		}
		all = append(all, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading calls: %w", err)
	}
	return all, nil
}

// callViews is runCalls for one run.
func callViews(ctx context.Context, q queryer, where string, args ...any) ([]CallView, error) {
	calls, err := runCalls(ctx, q, where, args...)
	var views []CallView
	for _, c := range calls {
		views = append(views, c.CallView)
	}
	return views, err
}

// MessageFates gives the fates of the last messages and control updates of a chat, newest first: what /why and the demo
// ask. For a message that became a run, Run is set.
func (s *Store) MessageFates(ctx context.Context, bot BotID, chat int64, limit int) ([]MessageFate, error) {
	rows, err := s.reads.QueryContext(ctx, `SELECT a.update_id, COALESCE(m.state, a.fate), COALESCE(m.reason, a.reason),
			COALESCE(m.run_id, ''), a.received_ms
		FROM arrival a LEFT JOIN message m ON m.message_id = a.message_id
		WHERE a.bot_id = $1 AND a.chat_id = $2 AND a.kind IN ('message', 'control')
		ORDER BY a.received_ms DESC, a.update_id DESC LIMIT $3`, bot, chat, limit)
	var all []MessageFate
	err = each(rows, err, func(scan func(...any) error) error {
		var f MessageFate
		var received int64
		if err := scan(&f.UpdateID, &f.Fate, &f.Reason, &f.Run, &received); err != nil {
			return err
		}
		f.At = at(received)
		all = append(all, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading fates: %w", err)
	}
	return all, nil
}

// MessageFate is one line of it.
type MessageFate struct {
	UpdateID int64
	Fate     Fate
	Reason   string
	Run      RunID
	At       time.Time
}
