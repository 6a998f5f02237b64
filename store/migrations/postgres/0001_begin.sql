-- +goose Up

-- What is the store's own: the check value of the sealing key, for one.
CREATE TABLE setting (
	name  TEXT NOT NULL PRIMARY KEY,
	value BYTEA NOT NULL
);

CREATE TABLE company (
	company_id TEXT NOT NULL PRIMARY KEY,
	name       TEXT NOT NULL,
	domains    TEXT NOT NULL DEFAULT '[]',
	zone       TEXT NOT NULL DEFAULT '',
	lang       TEXT NOT NULL DEFAULT '',
	created_ms BIGINT NOT NULL
);

-- What a company says over the house's rules. Versions stay: what a run was frozen with can be read later.
CREATE TABLE policy (
	company_id TEXT NOT NULL REFERENCES company (company_id),
	version    BIGINT NOT NULL,
	text       BYTEA,
	set_by     TEXT NOT NULL,
	set_ms     BIGINT NOT NULL,
	PRIMARY KEY (company_id, version)
);

CREATE TABLE person (
	person_id   TEXT NOT NULL PRIMARY KEY,
	telegram_id BIGINT NOT NULL UNIQUE,
	name        TEXT NOT NULL DEFAULT '',
	lang        TEXT NOT NULL DEFAULT '',
	zone        TEXT NOT NULL DEFAULT '',
	created_ms  BIGINT NOT NULL
);

CREATE TABLE membership (
	membership_id TEXT NOT NULL PRIMARY KEY,
	company_id    TEXT NOT NULL REFERENCES company (company_id),
	person_id     TEXT NOT NULL REFERENCES person (person_id),
	role          TEXT NOT NULL,
	external_user TEXT NOT NULL UNIQUE,
	is_current    BIGINT NOT NULL DEFAULT 0,
	created_ms    BIGINT NOT NULL,
	UNIQUE (company_id, person_id)
);
CREATE UNIQUE INDEX membership_one_current ON membership (person_id) WHERE is_current = 1;

CREATE TABLE invitation (
	token_hash BYTEA NOT NULL PRIMARY KEY,
	company_id TEXT NOT NULL REFERENCES company (company_id),
	role       TEXT NOT NULL,
	by_id      TEXT NOT NULL DEFAULT '',
	created_ms BIGINT NOT NULL,
	expires_ms BIGINT NOT NULL,
	spent_ms   BIGINT NOT NULL DEFAULT 0,
	spent_by   TEXT NOT NULL DEFAULT ''
);

-- What is remembered of one bot: the offset to poll from, and a pause that Telegram imposed on all its chats.
CREATE TABLE bot (
	bot_id      BIGINT NOT NULL PRIMARY KEY,
	next_offset BIGINT NOT NULL DEFAULT 0,
	paused_ms   BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE chat_pause (
	bot_id  BIGINT NOT NULL,
	chat_id BIGINT NOT NULL,
	until_ms BIGINT NOT NULL,
	PRIMARY KEY (bot_id, chat_id)
);

-- One update of Telegram. company_id is empty for a stranger's.
CREATE TABLE arrival (
	bot_id          BIGINT NOT NULL,
	update_id       BIGINT NOT NULL,
	company_id      TEXT NOT NULL DEFAULT '',
	kind            TEXT NOT NULL,
	from_id         BIGINT NOT NULL DEFAULT 0,
	chat_id         BIGINT NOT NULL DEFAULT 0,
	topic_id        BIGINT NOT NULL DEFAULT 0,
	is_private      BIGINT NOT NULL DEFAULT 0,
	telegram_id     BIGINT NOT NULL DEFAULT 0,
	is_stranger     BIGINT NOT NULL DEFAULT 0,
	conversation_id TEXT NOT NULL DEFAULT '',
	message_id      TEXT NOT NULL DEFAULT '',
	raw             BYTEA,
	fate            TEXT NOT NULL,
	reason          TEXT NOT NULL DEFAULT '',
	received_ms     BIGINT NOT NULL,
	settled_ms      BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (bot_id, update_id)
);
-- A message that comes again under a new update id is the same message.
CREATE UNIQUE INDEX arrival_one_message ON arrival (bot_id, chat_id, telegram_id) WHERE kind = 'message';
CREATE INDEX arrival_open ON arrival (bot_id, received_ms, update_id) WHERE fate = 'received';
CREATE INDEX arrival_sign ON arrival (settled_ms) WHERE kind = 'control' AND is_private = 1;
CREATE INDEX arrival_chat ON arrival (chat_id, received_ms);

-- Neutral lines said to strangers, so that they stay few.
CREATE TABLE stranger_line (
	bot_id  BIGINT NOT NULL,
	from_id BIGINT NOT NULL,
	at_ms   BIGINT NOT NULL
);
CREATE INDEX stranger_line_at ON stranger_line (bot_id, at_ms);

-- A private conversation belongs to one membership; in a group membership_id is empty. A session left by a run with a fence
-- up to forget_fence is not resumed.
CREATE TABLE conversation (
	conversation_id TEXT NOT NULL PRIMARY KEY,
	company_id      TEXT NOT NULL REFERENCES company (company_id),
	bot_id          BIGINT NOT NULL,
	chat_id         BIGINT NOT NULL,
	topic_id        BIGINT NOT NULL DEFAULT 0,
	is_private      BIGINT NOT NULL DEFAULT 0,
	membership_id   TEXT NOT NULL DEFAULT '',
	next_seq        BIGINT NOT NULL DEFAULT 0,
	fence           BIGINT NOT NULL DEFAULT 0,
	owner           TEXT NOT NULL DEFAULT '',
	state_version   BIGINT NOT NULL DEFAULT 0,
	session         TEXT NOT NULL DEFAULT '',
	forget_fence    BIGINT NOT NULL DEFAULT 0,
	created_ms      BIGINT NOT NULL,
	UNIQUE (bot_id, company_id, chat_id, topic_id, membership_id)
);

CREATE TABLE run (
	run_id              TEXT NOT NULL PRIMARY KEY,
	company_id          TEXT NOT NULL,
	conversation_id     TEXT NOT NULL REFERENCES conversation (conversation_id),
	membership_id       TEXT NOT NULL REFERENCES membership (membership_id),
	person_id           TEXT NOT NULL,
	fence               BIGINT NOT NULL,
	instance_id         TEXT NOT NULL,
	job_id              BIGINT NOT NULL,
	state               TEXT NOT NULL,
	attempt             BIGINT NOT NULL,
	messages            BIGINT NOT NULL,
	role                TEXT NOT NULL,
	scopes              TEXT NOT NULL,
	policy_grant        TEXT NOT NULL,
	accounts            TEXT NOT NULL,
	session             TEXT NOT NULL DEFAULT '',
	warm                BIGINT NOT NULL DEFAULT 0,
	cancel_requested_ms BIGINT NOT NULL DEFAULT 0,
	started_child_ms    BIGINT NOT NULL DEFAULT 0,
	started_ms          BIGINT NOT NULL,
	expires_ms          BIGINT NOT NULL,
	ended_ms            BIGINT NOT NULL DEFAULT 0,
	reason              TEXT NOT NULL DEFAULT '',
	turns               BIGINT NOT NULL DEFAULT 0,
	tokens_input        BIGINT NOT NULL DEFAULT 0,
	tokens_output       BIGINT NOT NULL DEFAULT 0,
	tokens_cache_read   BIGINT NOT NULL DEFAULT 0,
	tokens_cache_write  BIGINT NOT NULL DEFAULT 0,
	cost_usd            DOUBLE PRECISION NOT NULL DEFAULT 0,
	ms_queue            BIGINT NOT NULL DEFAULT 0,
	ms_spawn            BIGINT NOT NULL DEFAULT 0,
	ms_first_token      BIGINT NOT NULL DEFAULT 0,
	ms_tools            BIGINT NOT NULL DEFAULT 0,
	ms_delivery         BIGINT NOT NULL DEFAULT 0,
	ms_total            BIGINT NOT NULL DEFAULT 0
);
-- A second running run in a conversation is impossible, whatever the code above believes.
CREATE UNIQUE INDEX run_one_running ON run (conversation_id) WHERE state = 'running';
-- Nor are two processes kept ready for one conversation.
CREATE UNIQUE INDEX run_one_prepared ON run (conversation_id) WHERE state = 'prepared';
CREATE INDEX run_conversation ON run (conversation_id, started_ms);
CREATE INDEX run_company ON run (company_id, started_ms);
CREATE INDEX run_started ON run (started_ms);

CREATE TABLE message (
	message_id      TEXT NOT NULL PRIMARY KEY,
	company_id      TEXT NOT NULL,
	conversation_id TEXT NOT NULL REFERENCES conversation (conversation_id),
	seq             BIGINT NOT NULL,
	membership_id   TEXT NOT NULL,
	person_id       TEXT NOT NULL,
	bot_id          BIGINT NOT NULL,
	update_id       BIGINT NOT NULL,
	telegram_id     BIGINT NOT NULL,
	state           TEXT NOT NULL,
	reason          TEXT NOT NULL DEFAULT '',
	run_id          TEXT NOT NULL DEFAULT '',
	attempts        BIGINT NOT NULL DEFAULT 0,
	is_foreign      BIGINT NOT NULL DEFAULT 0,
	text            BYTEA,
	received_ms     BIGINT NOT NULL,
	told_ms         BIGINT NOT NULL DEFAULT 0,
	ended_ms        BIGINT NOT NULL DEFAULT 0,
	UNIQUE (conversation_id, seq)
);
CREATE INDEX message_open ON message (conversation_id, seq) WHERE state IN ('queued', 'running');
CREATE INDEX message_run ON message (run_id);

CREATE TABLE news (
	news_id         TEXT NOT NULL PRIMARY KEY,
	company_id      TEXT NOT NULL,
	conversation_id TEXT NOT NULL,
	membership_id   TEXT NOT NULL,
	tool            TEXT NOT NULL,
	outcome         TEXT NOT NULL,
	text            BYTEA,
	run_id          TEXT NOT NULL DEFAULT '',
	at_ms           BIGINT NOT NULL
);
CREATE INDEX news_waiting ON news (conversation_id, membership_id) WHERE run_id = '';
CREATE INDEX news_run ON news (run_id);

CREATE TABLE call (
	call_id         TEXT NOT NULL PRIMARY KEY,
	company_id      TEXT NOT NULL,
	run_id          TEXT NOT NULL,
	conversation_id TEXT NOT NULL,
	membership_id   TEXT NOT NULL,
	tool            TEXT NOT NULL,
	app             TEXT NOT NULL DEFAULT '',
	class           TEXT NOT NULL DEFAULT '',
	args            BYTEA,
	args_hash       BYTEA NOT NULL,
	account         BYTEA,
	decision        TEXT NOT NULL,
	rule            TEXT NOT NULL DEFAULT '',
	is_downgraded   BIGINT NOT NULL DEFAULT 0,
	why             TEXT NOT NULL DEFAULT '',
	outcome         TEXT NOT NULL DEFAULT '',
	code            TEXT NOT NULL DEFAULT '',
	result          BYTEA,
	begun_ms        BIGINT NOT NULL,
	ended_ms        BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX call_run ON call (run_id, begun_ms);
CREATE INDEX call_open ON call (run_id) WHERE outcome = '';
CREATE INDEX call_held ON call (call_id) WHERE outcome = 'held';
-- The identical write is decided once in a run, unless it certainly did not happen. What was refused before any decision
-- (why) was none.
CREATE UNIQUE INDEX call_one_write ON call (run_id, tool, args_hash) WHERE class <> 'read' AND why = '' AND outcome <> 'failed';

CREATE TABLE approval (
	approval_id     TEXT NOT NULL PRIMARY KEY,
	company_id      TEXT NOT NULL,
	call_id         TEXT NOT NULL UNIQUE,
	run_id          TEXT NOT NULL,
	conversation_id TEXT NOT NULL,
	membership_id   TEXT NOT NULL,
	bot_id          BIGINT NOT NULL,
	chat_id         BIGINT NOT NULL,
	topic_id        BIGINT NOT NULL DEFAULT 0,
	is_private      BIGINT NOT NULL DEFAULT 0,
	code            TEXT NOT NULL,
	kind            TEXT NOT NULL,
	rule            TEXT NOT NULL DEFAULT '',
	state           TEXT NOT NULL,
	digest          TEXT NOT NULL,
	asked_ms        BIGINT NOT NULL,
	expires_ms      BIGINT NOT NULL,
	decided_by      TEXT NOT NULL DEFAULT '',
	decided_ms      BIGINT NOT NULL DEFAULT 0,
	begun_by        TEXT NOT NULL DEFAULT '',
	begun_ms        BIGINT NOT NULL DEFAULT 0,
	facts           BYTEA,
	reminded        BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX approval_one_code ON approval (company_id, code) WHERE state = 'pending';
CREATE INDEX approval_pending ON approval (expires_ms) WHERE state = 'pending';
CREATE INDEX approval_run ON approval (run_id);
CREATE INDEX approval_company ON approval (company_id, asked_ms);

-- The outbox. ordinal is the order of writing; body is the draft, sealed, with the tokens of its buttons.
CREATE TABLE reply (
	ordinal         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	reply_id        TEXT NOT NULL UNIQUE,
	company_id      TEXT NOT NULL DEFAULT '',
	bot_id          BIGINT NOT NULL,
	conversation_id TEXT NOT NULL DEFAULT '',
	run_id          TEXT NOT NULL DEFAULT '',
	chat_id         BIGINT NOT NULL,
	topic_id        BIGINT NOT NULL DEFAULT 0,
	is_private      BIGINT NOT NULL DEFAULT 0,
	group_id        TEXT NOT NULL,
	group_ordinal   BIGINT NOT NULL DEFAULT 0,
	part            BIGINT NOT NULL,
	parts           BIGINT NOT NULL DEFAULT 0,
	priority        BIGINT NOT NULL,
	kind            TEXT NOT NULL,
	approval_id     TEXT NOT NULL DEFAULT '',
	edit_of         TEXT NOT NULL DEFAULT '',
	body            BYTEA,
	rendered        BYTEA,
	state           TEXT NOT NULL,
	attempts        BIGINT NOT NULL DEFAULT 0,
	sent_id         BIGINT NOT NULL DEFAULT 0,
	reason          TEXT NOT NULL DEFAULT '',
	created_ms      BIGINT NOT NULL,
	ended_ms        BIGINT NOT NULL DEFAULT 0,
	UNIQUE (group_id, part)
);
CREATE INDEX reply_waiting ON reply (bot_id, chat_id, priority, group_ordinal, part) WHERE state IN ('queued', 'sending');
CREATE INDEX reply_run ON reply (run_id);
CREATE INDEX reply_approval ON reply (approval_id) WHERE approval_id <> '';

CREATE TABLE button (
	token_hash BYTEA NOT NULL PRIMARY KEY,
	company_id TEXT NOT NULL DEFAULT '',
	reply_id   TEXT NOT NULL,
	action     TEXT NOT NULL,
	ref        BYTEA,
	created_ms BIGINT NOT NULL,
	expires_ms BIGINT NOT NULL
);
CREATE INDEX button_expires ON button (expires_ms);

-- provider_mac recognises a provider's account id that is itself sealed.
CREATE TABLE account (
	account_id    TEXT NOT NULL PRIMARY KEY,
	company_id    TEXT NOT NULL,
	membership_id TEXT NOT NULL REFERENCES membership (membership_id),
	app           TEXT NOT NULL,
	provider      BYTEA,
	provider_mac  BYTEA NOT NULL,
	name          BYTEA,
	state         TEXT NOT NULL,
	is_chosen     BIGINT NOT NULL DEFAULT 0,
	reason        TEXT NOT NULL DEFAULT '',
	asked_ms      BIGINT NOT NULL DEFAULT 0,
	checked_ms    BIGINT NOT NULL DEFAULT 0,
	told_ms       BIGINT NOT NULL DEFAULT 0,
	is_told       BIGINT NOT NULL DEFAULT 0,
	link_id       TEXT NOT NULL DEFAULT '',
	created_ms    BIGINT NOT NULL,
	UNIQUE (company_id, membership_id, app, provider_mac)
);
-- Calls act with the chosen account; a second one beside it is impossible.
CREATE UNIQUE INDEX account_one_chosen ON account (company_id, membership_id, app) WHERE is_chosen = 1;
CREATE INDEX account_check ON account (checked_ms) WHERE state IN ('active', 'broken');

CREATE TABLE link (
	link_id       TEXT NOT NULL PRIMARY KEY,
	secret_hash   BYTEA NOT NULL UNIQUE,
	company_id    TEXT NOT NULL,
	membership_id TEXT NOT NULL REFERENCES membership (membership_id),
	app           TEXT NOT NULL,
	bot_id        BIGINT NOT NULL DEFAULT 0,
	chat_id       BIGINT NOT NULL,
	topic_id      BIGINT NOT NULL DEFAULT 0,
	is_private    BIGINT NOT NULL DEFAULT 0,
	state         TEXT NOT NULL,
	connect_hash  BYTEA,
	accounts_before BYTEA,
	accounts      BIGINT NOT NULL DEFAULT 0,
	created_ms    BIGINT NOT NULL,
	expires_ms    BIGINT NOT NULL,
	opened_ms     BIGINT NOT NULL DEFAULT 0,
	used_ms       BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX link_opened ON link (expires_ms) WHERE state IN ('opened', 'used');

-- Insert-only. detail is the exact text that the chain hashes.
CREATE TABLE audit (
	audit_id   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	company_id TEXT NOT NULL DEFAULT '',
	at_ms      BIGINT NOT NULL,
	actor      TEXT NOT NULL,
	action     TEXT NOT NULL,
	subject    TEXT NOT NULL,
	detail     TEXT NOT NULL
);
CREATE INDEX audit_company ON audit (company_id, audit_id);

CREATE TABLE audit_link (
	company_id TEXT NOT NULL,
	seq        BIGINT NOT NULL,
	audit_id   BIGINT NOT NULL UNIQUE REFERENCES audit (audit_id),
	hash       BYTEA NOT NULL,
	PRIMARY KEY (company_id, seq)
);

CREATE TABLE audit_head (
	company_id TEXT NOT NULL PRIMARY KEY,
	seq        BIGINT NOT NULL,
	hash       BYTEA NOT NULL
);

-- Ownership: who is alive, and who polls what. Both are read by the database's own clock.
CREATE TABLE instance (
	instance_id  TEXT NOT NULL PRIMARY KEY,
	host         TEXT NOT NULL,
	pid          BIGINT NOT NULL,
	beat_ms      BIGINT NOT NULL,
	serves_turns BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE lease (
	name     TEXT NOT NULL PRIMARY KEY,
	owner    TEXT NOT NULL,
	until_ms BIGINT NOT NULL,
	fence    BIGINT NOT NULL
);

-- A request that stopped for want of an app, and goes on once when it is connected.
CREATE TABLE app_wait (
	wait_id         TEXT NOT NULL PRIMARY KEY,
	company_id      TEXT NOT NULL,
	membership_id   TEXT NOT NULL REFERENCES membership (membership_id),
	conversation_id TEXT NOT NULL REFERENCES conversation (conversation_id),
	run_id          TEXT NOT NULL,
	message_id      TEXT NOT NULL,
	app             TEXT NOT NULL,
	state           TEXT NOT NULL,
	resume_id       TEXT NOT NULL DEFAULT '',
	created_ms      BIGINT NOT NULL,
	expires_ms      BIGINT NOT NULL,
	connected_ms    BIGINT NOT NULL DEFAULT 0,
	ended_ms        BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX app_wait_one ON app_wait (conversation_id, membership_id, app) WHERE state IN ('waiting', 'connected');
CREATE INDEX app_wait_app ON app_wait (membership_id, app) WHERE state = 'waiting';
CREATE INDEX app_wait_run ON app_wait (run_id) WHERE state = 'connected';

-- Which of a person's apps is meant by "the calendar". app is empty while they were asked and have not said.
CREATE TABLE preference (
	company_id    TEXT NOT NULL,
	membership_id TEXT NOT NULL REFERENCES membership (membership_id),
	category      TEXT NOT NULL,
	app           TEXT NOT NULL DEFAULT '',
	asked_ms      BIGINT NOT NULL,
	set_ms        BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (company_id, membership_id, category)
);

-- Action definitions of the registry of connected apps, as accepted; next_* is what it says now, for a human to look at.
CREATE TABLE definition (
	action       TEXT NOT NULL PRIMARY KEY,
	version      TEXT NOT NULL,
	hash         TEXT NOT NULL,
	text         BYTEA NOT NULL,
	next_version TEXT NOT NULL DEFAULT '',
	next_hash    TEXT NOT NULL DEFAULT '',
	next_text    BYTEA,
	accepted_ms  BIGINT NOT NULL,
	seen_ms      BIGINT NOT NULL
);

-- Upstreams: the tools of other MCP servers as they were accepted, and the operators' own secrets for them.
CREATE TABLE upstream_tool (
	upstream      TEXT NOT NULL,
	company_id    TEXT NOT NULL DEFAULT '',
	tool          TEXT NOT NULL,
	is_listed     BIGINT NOT NULL,
	accepted_hash TEXT NOT NULL DEFAULT '',
	accepted      BYTEA,
	accepted_ms   BIGINT NOT NULL DEFAULT 0,
	held_hash     TEXT NOT NULL DEFAULT '',
	held          BYTEA,
	held_ms       BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (upstream, company_id, tool)
);

CREATE TABLE upstream_secret (
	upstream TEXT NOT NULL PRIMARY KEY,
	secret   BYTEA NOT NULL,
	set_ms   BIGINT NOT NULL
);

-- Approvals: who is away and who decides meanwhile; and how effects can be taken back, for a while, by who asked for them.
CREATE TABLE away (
	membership_id TEXT NOT NULL PRIMARY KEY REFERENCES membership (membership_id),
	company_id    TEXT NOT NULL,
	deputy_id     TEXT NOT NULL DEFAULT '',
	until_ms      BIGINT NOT NULL
);

CREATE TABLE undo (
	undo_id         TEXT NOT NULL PRIMARY KEY,
	company_id      TEXT NOT NULL,
	call_id         TEXT NOT NULL UNIQUE,
	run_id          TEXT NOT NULL,
	conversation_id TEXT NOT NULL,
	membership_id   TEXT NOT NULL,
	what            TEXT NOT NULL,
	tool            TEXT NOT NULL,
	app             TEXT NOT NULL DEFAULT '',
	class           TEXT NOT NULL DEFAULT '',
	args            BYTEA,
	account         BYTEA,
	state           TEXT NOT NULL,
	by_call         TEXT NOT NULL DEFAULT '',
	kept_ms         BIGINT NOT NULL,
	expires_ms      BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX undo_run ON undo (run_id);
CREATE INDEX undo_kept ON undo (kept_ms);
CREATE INDEX reply_together ON reply (run_id) WHERE kind = 'together';

-- A person on the way to an upstream server's authorization page, known by the state that comes back with them. notes holds
-- what the way back needs.
CREATE TABLE errand (
	state_hash    BYTEA NOT NULL PRIMARY KEY,
	company_id    TEXT NOT NULL,
	membership_id TEXT NOT NULL REFERENCES membership (membership_id),
	app           TEXT NOT NULL,
	notes         BYTEA,
	created_ms    BIGINT NOT NULL,
	expires_ms    BIGINT NOT NULL
);
CREATE INDEX errand_expires ON errand (expires_ms);

-- A person's own credential for an upstream server. An account has its id as the provider's (provider_mac is the same in
-- both). version rises with each new pair of tokens; only who holds the lease asks for one. The lease is read by the
-- database's own clock.
CREATE TABLE credential (
	credential_id TEXT NOT NULL PRIMARY KEY,
	company_id    TEXT NOT NULL,
	membership_id TEXT NOT NULL REFERENCES membership (membership_id),
	app           TEXT NOT NULL,
	provider_mac  BYTEA NOT NULL,
	name          BYTEA,
	secret        BYTEA,
	version       BIGINT NOT NULL DEFAULT 1,
	issued_ms     BIGINT NOT NULL,
	expires_ms    BIGINT NOT NULL DEFAULT 0,
	refused_ms    BIGINT NOT NULL DEFAULT 0,
	put_off_ms    BIGINT NOT NULL DEFAULT 0,
	broken        TEXT NOT NULL DEFAULT '',
	lease         TEXT NOT NULL DEFAULT '',
	lease_ms      BIGINT NOT NULL DEFAULT 0,
	created_ms    BIGINT NOT NULL
);
CREATE INDEX credential_person ON credential (company_id, membership_id, app);

-- What pilder is to an authorization server: a registration it was given there (secret), and since when it is refused.
CREATE TABLE oauth_client (
	issuer     TEXT NOT NULL,
	client_id  TEXT NOT NULL,
	secret     BYTEA,
	refused_ms BIGINT NOT NULL DEFAULT 0,
	created_ms BIGINT NOT NULL,
	PRIMARY KEY (issuer, client_id)
);
-- Of the registrations at one server one counts.
CREATE UNIQUE INDEX oauth_client_one ON oauth_client (issuer) WHERE secret IS NOT NULL AND refused_ms = 0;
