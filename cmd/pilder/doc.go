// Command pilder is the whole product in one binary: it joins the folders and holds no rules of its own.
//
// # A guided tour
//
// A person writes to the bot. What happens then, left to right, with the file to open at each step:
//
//  1. bot/poll.go asks Telegram for updates, keeping each one's bytes.
//  2. store/receive.go commits them: raw update, offset, message, and the wake-up of the conversation's turn. Only now is
//     Telegram told that they arrived.
//  3. runner/worker.go takes the turn, runner/admission.go says when it may begin: the waiting messages of one sender become
//     one run (store/run.go freezes the grant).
//  4. runner/agent.go starts the agent in its sandbox (runner/sandbox.go), unless one waits in runner/pool.go; prompt/dynamic.go
//     words what it is told, and runner/turn.go follows its turn.
//  5. gateway/door.go is what the agent's MCP client finds: one listener, one run, 401 without its token. gateway/direct.go
//     takes its calls, on the bytes that came.
//  6. gateway/call.go is the choke point: validate, decide (policy/judge.go), commit the call (store/call.go), and only
//     then act through a connector (gateway/pipedream, gateway/upstream, gateway/native), or answer that a human has to press
//     a button.
//  7. A button: bot/press.go, store/approval.go, and gateway/approved.go runs the frozen arguments once, without the model.
//  8. store/finish.go ends the run: outcome, token dead, reply in the outbox, audit.
//  9. bot/sender.go sends it, and repeats only what Telegram certainly did not perform.
//
// # This folder
//
// main.go is the command line, one file per group of subcommands beside it. config.go is everything an operator can set.
// house.go joins the parts, stages.go stops them in order: polling, runs, doors and HTTP, store. demo.go puts the stand-ins
// of sim (standins.go) where Telegram, the model and Pipedream would be, with a company in it (seed.go), and says one message
// for --say (say.go); beside them only sim.go knows that they exist.
//
// Other MCP servers are configured in upstreamconfig.go and joined in upstreams.go, people's own grants for them in grants.go.
//
// Nothing calls backwards: bot, runner and gateway never import each other. They meet in the database, and house.go hands
// the runner the functions that serve its doors.
package main
