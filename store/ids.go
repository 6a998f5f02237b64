package store

import (
	"crypto/rand"
	"encoding/base32"
	"strings"

	"pilder/policy"
)

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
	CredentialID   string
)

// BotID is the numeric id of a Telegram bot: the part of its token before the colon.
type BotID int64

// Prefixes of ids, so that one found in a log says what it names.
const (
	prefixCompany      = "com_"
	prefixPerson       = "per_"
	prefixMembership   = "mem_"
	prefixConversation = "con_"
	prefixMessage      = "msg_"
	prefixRun          = "run_"
	prefixCall         = "cal_"
	prefixApproval     = "apr_"
	prefixReply        = "rep_"
	prefixAccount      = "acc_"
	prefixLink         = "lnk_"
	prefixWait         = "wai_"
	prefixNews         = "new_"
	prefixUndo         = "und_"
	prefixInstance     = "ins_"
	prefixExternalUser = "usr_"
	prefixCredential   = "crd_"
	prefixRenewal      = "ren_"
)

// newID makes 100 random bits as 20 lower-case characters behind prefix.
func newID(prefix string) string {
	var b [13]byte
	rand.Read(b[:])
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
	return prefix + strings.ToLower(text[:20])
}
