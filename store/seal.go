package store

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// ErrKey is returned by Open when the key is not the one the database was sealed with, or is no key at all.
var ErrKey = errors.New("wrong sealing key")

// errSealed is one value that does not open: its row is damaged, or was moved from where it belongs.
var errSealed = errors.New("sealed value does not open")

// sealer keeps columns unreadable to whoever has only the database. A sealed value is bound to its column, row and
// company, so that it opens nowhere else: one byte naming the key, twelve random bytes of nonce, then AES-256-GCM.
type sealer struct {
	id   byte
	aead cipher.AEAD
	mac  []byte // a second key, for recognising what is sealed
}

func newSealer(key []byte) (sealer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealer{}, fmt.Errorf("preparing the sealing key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return sealer{}, fmt.Errorf("preparing the sealing key: %w", err)
	}
	return sealer{id: derive(key, "key id")[0], aead: aead, mac: derive(key, "recognition")}, nil
}

// derive makes another 32 bytes from the key, for one purpose.
func derive(key []byte, purpose string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("pilder " + purpose))
	return h.Sum(nil)
}

// seal closes plain for column ("message.text") of one row. Nothing stays nothing: nil gives nil, which is NULL.
func (k sealer) seal(column, row string, company CompanyID, plain []byte) []byte {
	if plain == nil {
		return nil
	}
	nonce := make([]byte, k.aead.NonceSize())
	rand.Read(nonce)
	out := append(make([]byte, 0, 1+len(nonce)+len(plain)+k.aead.Overhead()), k.id)
	return k.aead.Seal(append(out, nonce...), nonce, plain, sealedFor(column, row, company))
}

// open undoes seal.
func (k sealer) open(column, row string, company CompanyID, sealed []byte) ([]byte, error) {
	if sealed == nil {
		return nil, nil
	}
	n := 1 + k.aead.NonceSize()
	if len(sealed) < n || sealed[0] != k.id {
		return nil, fmt.Errorf("opening %s of %s: %w: %w", column, row, errSealed, ErrKey)
	}
	plain, err := k.aead.Open([]byte{}, sealed[1:n], sealed[n:], sealedFor(column, row, company))
	if err != nil {
		return nil, fmt.Errorf("opening %s of %s: %w", column, row, errSealed) // the library says no more than that
	}
	return plain, nil
}

// recognise gives what a sealed text can be found by: equal texts of one column and company give equal bytes, and
// nobody without the key can try texts out.
func (k sealer) recognise(column string, company CompanyID, text string) []byte {
	h := hmac.New(sha256.New, k.mac)
	h.Write(sealedFor(column, text, company))
	return h.Sum(nil)
}

// sealedFor says where a value belongs. Columns and companies hold no zero byte, so no two places read alike.
func sealedFor(column, row string, company CompanyID) []byte {
	return []byte(column + "\x00" + string(company) + "\x00" + row)
}

// keyFor reads the configured key, or with SQLite and none configured the file beside the database, made at first use.
func keyFor(cfg Config, file string) ([]byte, error) {
	text := cfg.Key.Reveal()
	if text == "" && file == "" {
		return nil, fmt.Errorf("%w: PostgreSQL needs store.key, 64 hex digits", ErrKey)
	}
	if text == "" {
		var err error
		if text, err = keyFile(file); err != nil {
			return nil, err
		}
	}
	key, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf("%w: it must be 64 hex digits", ErrKey) // the decoder's error would quote a digit of the key
	}
	return key, nil
}

func keyFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err == nil {
		return string(text), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the sealing key: %w", err)
	}
	var key [32]byte
	rand.Read(key[:])
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("making the sealing key: %w", err)
	}
	_, err = fmt.Fprintf(f, "%x\n", key)
	// Synced before anything is sealed with it: a key lost at power loss would leave everything unreadable.
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", fmt.Errorf("writing the sealing key %s: %w", path, err)
	}
	return hex.EncodeToString(key[:]), nil
}

// checkKey compares the key with the one this database was begun with, so that a wrong one is told at start and not by
// the first message that does not open.
func (s *Store) checkKey(ctx context.Context) error {
	const column, row = "setting.value", "seal.check"
	want := []byte("pilder")
	return s.quietTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`,
			row, s.seal.seal(column, row, "", want))
		if err != nil {
			return err
		}
		var sealed []byte
		if err := tx.QueryRowContext(ctx, `SELECT value FROM setting WHERE name = $1`, row).Scan(&sealed); err != nil {
			return err
		}
		got, err := s.seal.open(column, row, "", sealed)
		if err != nil || subtle.ConstantTimeCompare(got, want) != 1 {
			return fmt.Errorf("%w: the database was sealed with another one", ErrKey)
		}
		return nil
	})
}
