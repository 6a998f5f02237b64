// Package anthropic is a stand-in for the Anthropic Messages API: the real Claude Code CLI talks to it over HTTP and gets
// answers played from scripts that are chosen by what the person wrote. It refuses to know any result by heart: what it
// says about events, mail or links it has read in the tool results of the request at hand. It keeps no state between
// requests but the record of them, so that a repeated request gets a repeated answer; and it refuses what the real API
// refuses: a wrong key, a tool use without its result, a schema that is none.
//
// What the package says about the CLI's wire was measured with CLI 2.1.332 against this server and a small MCP server.
package anthropic
