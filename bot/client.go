package bot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"pilder/store"
)

// maxBody bounds an answer of the Bot API. A getUpdates answer is at most 4 MiB (server source, 10.0).
const maxBody = 8 << 20

// refusedError is a well-formed refusal: Telegram says that it did not do it.
type refusedError struct {
	Method      string
	Code        int
	Description string // Telegram's words, cut; may quote what we sent, so it is matched but never logged
	RetryAfter  time.Duration
}

func (e *refusedError) Error() string { return fmt.Sprintf("%s refused with %d", e.Method, e.Code) }

// notSentError tells that not one byte of the request left this machine for Telegram.
type notSentError struct {
	Method string
	Cause  error
}

func (e *notSentError) Error() string { return e.Method + " not sent: " + e.Cause.Error() }
func (e *notSentError) Unwrap() error { return e.Cause }

// unsureError tells that the request went out and that no proper answer came: it may have been performed.
type unsureError struct {
	Method string
	Status int // HTTP status, 0 when none came
	Cause  error
	body   []byte // of errNotJSON, its beginning; never logged
}

func (e *unsureError) Error() string {
	return fmt.Sprintf("%s without a proper answer (status %d): %v", e.Method, e.Status, e.Cause)
}
func (e *unsureError) Unwrap() error { return e.Cause }

// Causes of an unsureError.
var (
	errNotJSON = errors.New("body is not the api's json") // complete, but something else: a proxy's page, say
	errTooLong = errors.New("body is too long")
	errCut     = errors.New("body ended early")
)

// client performs one HTTP request for the Bot API and tells the three kinds of failure apart. It is the http client
// that the library sends with, so that the library never sees a body that is not the API's.
type client struct {
	url   string
	token store.Secret
	http  *http.Client
}

func newClient(api string, token store.Secret) *client {
	one := new(http.Protocols)
	one.SetHTTP1(true) // a retry inside HTTP/2 would be invisible to the trace below
	return &client{url: api, token: token, http: &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout:   15 * time.Second,
			IdleConnTimeout:       30 * time.Second,
			MaxIdleConnsPerHost:   8,
			ResponseHeaderTimeout: 0, // a long poll is late on purpose; contexts bound every call
			Protocols:             one,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the path holds the token
	}}
}

// Do performs the request. Its error is one of the three above, or the context's inside one of them.
func (c *client) Do(req *http.Request) (*http.Response, error) {
	method := path.Base(req.URL.Path)
	if err := buffer(req); err != nil {
		return nil, &notSentError{method, errors.New("request body could not be made")}
	}
	var out atomic.Bool
	trace := &httptrace.ClientTrace{
		// A new connection is sought only when nothing was written on the one before (net/http, shouldRetryRequest, POST).
		GetConn:      func(string) { out.Store(false) },
		GotConn:      func(httptrace.GotConnInfo) { out.Store(true) },
		WroteHeaders: func() { out.Store(true) },
	}
	resp, err := c.http.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		if err = c.clean(err); !out.Load() {
			return nil, &notSentError{method, err}
		}
		return nil, &unsureError{Method: method, Cause: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &unsureError{Method: method, Status: resp.StatusCode, Cause: errCut}
	case err != nil:
		return nil, &unsureError{Method: method, Status: resp.StatusCode, Cause: c.clean(err)}
	case len(body) > maxBody:
		return nil, &unsureError{Method: method, Status: resp.StatusCode, Cause: errTooLong}
	}
	return c.judge(method, resp, body)
}

// judge reads the envelope. A refusal becomes an error here, since the library would lose its shape.
func (c *client) judge(method string, resp *http.Response, body []byte) (*http.Response, error) {
	var env struct {
		OK          *bool  `json:"ok"`
		Code        int    `json:"error_code"`
		Description string `json:"description"`
		Parameters  struct {
			RetryAfter int `json:"retry_after"`
		} `json:"parameters"`
	}
	header := time.Duration(0)
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
		header = seconds(n)
	}
	if err := json.Unmarshal(body, &env); err != nil || env.OK == nil {
		switch {
		case resp.StatusCode == http.StatusRequestEntityTooLarge,
			resp.StatusCode == http.StatusTooManyRequests && header > 0:
			// Refused by the web server in front, with a page: it certainly went no further.
			return nil, &refusedError{Method: method, Code: resp.StatusCode, RetryAfter: header}
		}
		return nil, &unsureError{Method: method, Status: resp.StatusCode, Cause: errNotJSON, body: body[:min(len(body), 1<<20)]}
	}
	if *env.OK {
		resp.Body = io.NopCloser(bytes.NewReader(body))
		return resp, nil
	}
	if env.Code == 0 {
		env.Code = resp.StatusCode
	}
	e := &refusedError{Method: method, Code: env.Code, Description: clip(env.Description, 300), RetryAfter: seconds(env.Parameters.RetryAfter)}
	if e.RetryAfter <= 0 {
		e.RetryAfter = header
	}
	return nil, e
}

// call makes a call with a JSON body and gives the result's bytes.
func (c *client) call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	body, err := json.Marshal(params)
	if err != nil {
		return nil, &notSentError{method, err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/bot"+c.token.Reveal()+"/"+method, bytes.NewReader(body))
	if err != nil {
		return nil, &notSentError{method, errors.New("bad address")}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	var env struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&env); err != nil {
		return nil, &unsureError{Method: method, Status: resp.StatusCode, Cause: errNotJSON}
	}
	return env.Result, nil
}

// clean takes the address, which holds the token, out of an error.
func (c *client) clean(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if strings.Contains(err.Error(), c.token.Reveal()) {
		return errors.New("network error")
	}
	return err
}

// buffer turns the library's streamed body into one of known length that net/http may send anew on a fresh connection
// when the old one turned out dead before the first byte.
func buffer(req *http.Request) error {
	if req.Body == nil || req.GetBody != nil {
		return nil
	}
	data, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	req.Body.Close()
	req.ContentLength = int64(len(data))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	req.Body, _ = req.GetBody()
	return nil
}

// maxPause is the longest penalty believed. Telegram's own are waited out in full; one of years is a fault of somebody's.
const maxPause = 24 * time.Hour

func seconds(n int) time.Duration {
	return time.Duration(min(n, int(maxPause/time.Second))) * time.Second
}

// clip cuts text to at most n bytes, at a rune.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
