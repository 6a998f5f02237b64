package model_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestNoOddRequestReachesTheModel sends what no client library would. Whatever the door's server makes of it, nothing of it
// arrives upstream, and what the answer says has no key in it.
func TestNoOddRequestReachesTheModel(t *testing.T) {
	const key = "X-Api-Key: " + processKey + "\r\n"
	const host = "Host: 127.0.0.1:7001\r\n"
	length := "Content-Length: " + strconv.Itoa(len(question)) + "\r\n"
	post := func(target, head, body string) string {
		return "POST " + target + " HTTP/1.1\r\n" + head + "\r\n" + body
	}
	chunked := strconv.FormatInt(int64(len(question)), 16) + "\r\n" + question + "\r\n0\r\n\r\n"
	for name, raw := range map[string]string{
		"control: an escaped letter":       post("/v1/%6Dessages", host+key+length, question),
		"escaped dots":                     post("/v1/messages/%2e%2e/files", host+key+length, question),
		"dots":                             post("/v1/messages/../files", host+key+length, question),
		"a doubled slash":                  post("/v1//messages", host+key+length, question),
		"a slash before":                   post("//v1/messages", host+key+length, question),
		"absolute form of the door itself": post("http://127.0.0.1:7001/v1/messages", host+key+length, question),
		"absolute form of the API":         post("https://api.anthropic.com/v1/messages", host+key+length, question),
		"a fragment":                       post("/v1/messages#x", host+key+length, question),
		"a semicolon":                      post("/v1/messages;x", host+key+length, question),
		"a query twice":                    post("/v1/messages?beta=true&beta=true", host+key+length, question),
		"a tab in the target":              post("/v1/messages\t", host+key+length, question),
		"files":                            post("/v1/files", host+key+length, question),
		"the attacker's own key":           post("/v1/files", host+"X-Api-Key: sk-ant-attacker\r\n"+length, question),
		"organizations":                    "GET /v1/organizations/me HTTP/1.1\r\n" + host + key + "\r\n",
		"models":                           "GET /v1/models HTTP/1.1\r\n" + host + key + "\r\n",
		"another host":                     post("/v1/messages", "Host: api.anthropic.com\r\n"+key+length, question),
		"a host with a user":               post("/v1/messages", "Host: x@127.0.0.1:7001\r\n"+key+length, question),
		"two hosts":                        post("/v1/messages", host+"Host: api.anthropic.com\r\n"+key+length, question),
		"no host":                          post("/v1/messages", key+length, question),
		"a length and chunks":              post("/v1/messages", host+key+length+"Transfer-Encoding: chunked\r\n", chunked),
		"chunks and a length":              post("/v1/messages", host+key+"Transfer-Encoding: chunked\r\n"+length, chunked),
		"chunks":                           post("/v1/messages", host+key+"Transfer-Encoding: chunked\r\n", chunked),
		"chunks twice":                     post("/v1/messages", host+key+"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", chunked),
		"chunks by another name":           post("/v1/messages", host+key+length+"Transfer-Encoding: xchunked\r\n", question),
		"two lengths":                      post("/v1/messages", host+key+length+"Content-Length: 1\r\n", question),
		"a length below nothing":           post("/v1/messages", host+key+"Content-Length: -1\r\n", question),
		"a length too short":               post("/v1/messages", host+key+"Content-Length: 10\r\n", question),
		"no length":                        post("/v1/messages", host+key, question),
		"a compressed body":                post("/v1/messages", host+key+length+"Content-Encoding: identity\r\n", question),
		"upgrade to HTTP/2":                post("/v1/messages", host+key+length+"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n", question),
		"upgrade to a socket":              "GET /v1/messages HTTP/1.1\r\n" + host + key + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"HTTP/2 by prior knowledge":        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"HTTP/2 by its name":               strings.Replace(post("/v1/messages", host+key+length, question), "HTTP/1.1", "HTTP/2.0", 1),
		"HTTP/0.9":                         "POST /v1/messages\r\n\r\n",
		"connect":                          "CONNECT api.anthropic.com:443 HTTP/1.1\r\nHost: api.anthropic.com:443\r\n" + key + "\r\n",
		"connect to the path":              "CONNECT /v1/messages HTTP/1.1\r\n" + host + key + "\r\n",
		"trace":                            "TRACE /v1/messages HTTP/1.1\r\n" + host + key + "\r\n",
		"options of everything":            "OPTIONS * HTTP/1.1\r\n" + host + key + "\r\n",
		"put":                              strings.Replace(post("/v1/messages", host+key+length, question), "POST", "PUT", 1),
		"a method in small letters":        strings.Replace(post("/v1/messages", host+key+length, question), "POST", "post", 1),
		"a space before the colon":         post("/v1/messages", host+"X-Api-Key : "+processKey+"\r\n"+length, question),
		"a NUL in a header":                post("/v1/messages", host+key+"X: a\x00b\r\n"+length, question),
		"headers without end":              post("/v1/messages", host+key+"X: "+strings.Repeat("a", 100<<10)+"\r\n"+length, question),
		"two keys":                         post("/v1/messages", host+key+"X-Api-Key: sk-ant-attacker\r\n"+length, question),
	} {
		t.Run(name, func(t *testing.T) {
			d := serve(t, func(_ http.ResponseWriter, r *http.Request) {
				t.Errorf("the model was asked: %s %s", r.Method, r.RequestURI)
			})
			status, said := exchange(t, d.addr, raw)
			if status != 0 && (status < 400 || status == http.StatusInternalServerError) || strings.Contains(said, realKey) || strings.Contains(said, processKey) {
				t.Errorf("%d %s", status, said)
			}
		})
	}
	t.Run("control: an ordinary one arrives", func(t *testing.T) {
		d := serve(t, echo)
		if status, said := exchange(t, d.addr, post("/v1/messages", host+key+length, question)); status != http.StatusOK || said != question {
			t.Errorf("%d %s", status, said)
		}
	})
}

// exchange sends bytes, and a last request that ends the connection, so that whatever a first one smuggled behind itself has
// been answered when it returns the first answer. The status is 0 when the connection ends without one.
func exchange(t *testing.T, addr, raw string) (status int, said string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { // a server that has seen enough does not read it all
		_, _ = io.WriteString(conn, raw+"GET /end HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	}()
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body) // what there is
	_, _ = io.Copy(io.Discard, r)
	return resp.StatusCode, string(b)
}
