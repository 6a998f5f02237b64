// Package store remembers everything, and wakes who must act: companies, people, conversations, messages, runs, calls,
// approvals, replies and the audit, on SQLite or PostgreSQL. Its methods are verbs of the story, exactly one transaction
// each; audit rows are written here and nowhere else, inside the transaction they describe. It refuses to call anything
// outside while a transaction is open, to answer across companies, and to hand out a row whose owner changed.
package store
