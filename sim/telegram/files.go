package telegram

import (
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

// What the Bot API says about files.
const (
	downloadLimit = 20 << 20  // bytes; larger files have no link
	linkLife      = time.Hour // "at least 1 hour"; here exactly
	fileIDBytes   = 42        // as long as real ones
	plainMIME     = "application/octet-stream"
)

// document is a stored file.
type document struct {
	id, unique string
	name, mime string
	size       int64 // as told; may exceed what is stored
	content    []byte
	path       string // as handed out by getFile, "" before
	linkUntil  time.Time
}

// Document is a file as a person sees it.
type Document struct {
	FileID, Name, MIME string
	Size               int64
}

func (d *document) seen() *Document {
	if d == nil {
		return nil
	}
	return &Document{FileID: d.id, Name: d.name, MIME: d.mime, Size: d.size}
}

func (d *document) wire() map[string]any {
	out := map[string]any{"file_id": d.id, "file_unique_id": d.unique, "file_size": d.size}
	if d.name != "" {
		out["file_name"] = d.name
	}
	if d.mime != "" {
		out["mime_type"] = d.mime
	}
	return out
}

// newDocument makes a file that is not stored yet. The caller holds mu.
func (s *Server) newDocument(f upload) *document {
	raw := make([]byte, fileIDBytes)
	for i := range raw {
		raw[i] = byte(s.random.UintN(256))
	}
	id := "BQACAgQAAx" + base64.RawURLEncoding.EncodeToString(raw)
	kind := f.mime
	if kind == "" || kind == plainMIME {
		if kind = mime.TypeByExtension(path.Ext(f.name)); kind == "" {
			kind = plainMIME
		}
		kind, _, _ = strings.Cut(kind, ";")
	}
	return &document{id: id, unique: "AgAD" + id[20:32], name: f.name, mime: kind, size: int64(len(f.content)), content: f.content}
}

func (s *Server) keep(d *document) { s.documents[d.id] = d }

// givenDocument is the file of a sendDocument: uploaded, or sent before.
func (s *Server) givenDocument(c *call) (*document, *apiError) {
	field := "document"
	if given := c.params[field]; given != "" {
		name, attached := strings.CutPrefix(given, "attach://")
		if !attached {
			if d := s.documents[given]; d != nil {
				return d, nil
			}
			return nil, badRequest("wrong remote file identifier specified: Wrong string length")
		}
		field = name
	}
	f, uploaded := c.files[field]
	switch {
	case !uploaded:
		return nil, badRequest("there is no document in the request")
	case len(f.content) == 0:
		return nil, badRequest("file must be non-empty")
	}
	return s.newDocument(f), nil
}

func (s *Server) getFile(c *call) (any, string, *apiError) {
	id := c.params["file_id"]
	if id == "" {
		return nil, "", badRequest("file_id not specified")
	}
	d := s.documents[id]
	if d == nil {
		return nil, "", badRequest("invalid file_id")
	}
	if d.size > downloadLimit {
		return nil, "", badRequest("file is too big")
	}
	if d.path == "" {
		d.path = fmt.Sprintf("documents/file_%d%s", len(s.paths), path.Ext(path.Base("/"+d.name)))
		s.paths[d.path] = d
	}
	d.linkUntil = s.now().Add(linkLife)
	return map[string]any{
		"file_id": d.id, "file_unique_id": d.unique, "file_size": d.size, "file_path": d.path,
	}, "", nil
}

// serveFile hands out what getFile gave a path for.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request) {
	token, file, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/file/bot"), "/")
	if subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
		writeAnswer(w, refused(&apiError{code: 401, description: "Unauthorized"}))
		return
	}
	s.mu.Lock()
	d := s.paths[file]
	alive := d != nil && s.now().Before(d.linkUntil)
	s.mu.Unlock()
	if !alive {
		writeAnswer(w, refused(&apiError{code: 404, description: "Not Found"}))
		return
	}
	w.Header().Set("Content-Type", plainMIME)
	// The reader may leave early; that is its business.
	_, _ = w.Write(d.content)
}
