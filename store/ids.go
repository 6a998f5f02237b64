package store

import "pilder/policy"

// Ids are opaque random text ("cal_…", "run_…"), never guessed and never derived from a person's data.
type (
	CompanyID    = policy.CompanyID
	PersonID     = policy.PersonID
	MembershipID = policy.MembershipID
	RunID        = policy.RunID

	ConversationID string
	MessageID      string
	CallID         string
	ApprovalID     string
	ReplyID        string
	AccountID      string
)

// BotID is the numeric id of a Telegram bot: the part of its token before the colon.
type BotID int64
