package egress

import (
	"bufio"
	"errors"
	"net/http"
	"strings"
)

// maxHead bounds a request: its line and its headers.
const maxHead = 8 << 10

// refusal is why a connection leads nowhere. The reason has nothing of what the agent sent.
type refusal struct {
	status int // 0: it is too late to say so
	reason string
}

// breach tells whether the agent tried what it may not, and not only met a web that does not answer.
func (r refusal) breach() bool {
	switch r.reason {
	case "no_address", "unreachable", "left", "time":
		return false
	}
	return true
}

// words are what the agent reads of a refusal.
func (r refusal) words() string {
	switch r.reason {
	case "method":
		return "only https: CONNECT to port 443"
	case "port":
		return "only port 443"
	case "not_listed":
		return "this name is not on the list of those that can be reached"
	case "address":
		return "this name does not lead to a public address"
	case "no_address":
		return "this name has no address"
	case "unreachable":
		return "it does not answer"
	case "run_bytes":
		return "this run has moved all the bytes that it may"
	case "run_over":
		return "no turn is running"
	}
	return "not a proper request"
}

var errHead = errors.New("not one whole request")

// readRequest reads a CONNECT request and gives the host it names. It reads strictly what such a request is: a general
// server would forgive, and what it forgives another reads differently. Nothing of the request goes further than here.
func readRequest(r *bufio.Reader) (string, *refusal) {
	lines, err := readHead(r)
	if err != nil {
		return "", &refusal{http.StatusBadRequest, "request"}
	}
	words := strings.Split(lines[0], " ")
	if len(words) != 3 || words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0" {
		return "", &refusal{http.StatusBadRequest, "request"}
	}
	if words[0] != http.MethodConnect {
		return "", &refusal{http.StatusMethodNotAllowed, "method"}
	}
	host, refused := target(words[1])
	if refused != nil {
		return "", refused
	}
	hosts := 0
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		switch {
		case !ok || name == "" || strings.ContainsAny(name, " \t\"(),/;<=>?@[\\]{}"): // also a line that goes on from the one before
			return "", &refusal{http.StatusBadRequest, "header"}
		case strings.EqualFold(name, "Transfer-Encoding"), strings.EqualFold(name, "Upgrade"),
			strings.EqualFold(name, "Content-Length") && value != "0":
			return "", &refusal{http.StatusBadRequest, "body"}
		case strings.EqualFold(name, "Host"):
			hosts++
			named, err := hostName(strings.TrimSuffix(value, ":443"))
			if hosts > 1 || err != nil || named != host {
				return "", &refusal{http.StatusBadRequest, "host"}
			}
		}
	}
	return host, nil
}

// target reads "name:443" and nothing that only looks like it.
func target(s string) (string, *refusal) {
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 {
		return "", &refusal{http.StatusBadRequest, "target"}
	}
	host, err := hostName(s[:colon])
	if err != nil {
		return "", &refusal{http.StatusBadRequest, "name"}
	}
	if s[colon+1:] != "443" {
		return "", &refusal{http.StatusForbidden, "port"}
	}
	return host, nil
}

// readHead reads the lines up to the empty one, each ended by CR and LF, and with no other control character in it.
func readHead(r *bufio.Reader) ([]string, error) {
	var lines []string
	for size := 0; ; {
		line, err := r.ReadSlice('\n')
		size += len(line)
		if err != nil || size > maxHead || len(line) < 2 || line[len(line)-2] != '\r' {
			return nil, errHead
		}
		text := string(line[:len(line)-2])
		if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c >= 0x7f }) {
			return nil, errHead
		}
		if text == "" {
			if len(lines) == 0 {
				return nil, errHead
			}
			return lines, nil
		}
		lines = append(lines, text)
	}
}
