package runner_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"pilder/runner"
)

// sent is a file that a person sends.
func sent(kind, name, content string) runner.Incoming {
	return runner.Incoming{Kind: kind, Name: name, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(content)), nil
	}}
}

func TestAPersonsFileGetsANameOfTheHouse(t *testing.T) {
	for name, c := range map[string]struct{ kind, given, path, shown string }{
		"plain":                {"document", "Factura marzo.pdf", "inbox/1.pdf", "Factura marzo.pdf"},
		"capitals":             {"document", "FOTO.JPG", "inbox/1.jpg", "FOTO.JPG"},
		"climbing":             {"document", "../../CLAUDE.md", "inbox/1.md", "CLAUDE.md"},
		"settings":             {"document", ".claude/settings.json", "inbox/1.json", "settings.json"},
		"hidden":               {"document", ".mcp.json", "inbox/1.json", "mcp.json"},
		"backslashes":          {"document", `C:\Users\ana\x.docx`, "inbox/1.docx", "x.docx"},
		"NUL":                  {"document", "a\x00b.pdf\x00.sh", "inbox/1.bin", "ab.pdf.sh"},
		"lines and escapes":    {"document", "a\nb\x1b[31m.txt", "inbox/1.txt", "a b[31m.txt"},
		"right to left":        {"document", "photo\u202egpj.exe", "inbox/1.bin", "photogpj.exe"},
		"zero width":           {"document", "a\u200bb\ufeff\u2060.p\u200cdf", "inbox/1.pdf", "ab.pdf"},
		"markup":               {"document", `</file><b>"x"|.txt`, "inbox/1.txt", "file__b__x__.txt"},
		"invalid UTF-8":        {"document", "a\xff.csv", "inbox/1.csv", "a_.csv"},
		"nothing":              {"photo", "", "inbox/1.jpg", ""},
		"nothing but unseen":   {"voice", "\u200b\u3164 . ", "inbox/1.ogg", ""},
		"only dots":            {"document", "../..", "inbox/1.bin", ""},
		"unknown extension":    {"document", "run.sh", "inbox/1.bin", "run.sh"},
		"4 KiB":                {"document", strings.Repeat("ñ", 2048) + ".pdf", "inbox/1.pdf", strings.Repeat("ñ", 76) + ".pdf"},
		"4 KiB of extension":   {"document", "a." + strings.Repeat("e", 4096), "inbox/1.bin", "a." + strings.Repeat("e", 78)},
		"a kind nobody knows":  {"../../x", "", "inbox/1.bin", ""},
		"slashes of elsewhere": {"document", "a\u2215b\uff0fc.txt", "inbox/1.txt", "a_b_c.txt"},
	} {
		t.Run(name, func(t *testing.T) {
			work, _ := conversation(t)
			laid, err := runner.Inbox{}.Lay(t.Context(), work, []runner.Incoming{sent(c.kind, c.given, "content")})
			must(t, err)
			want := []runner.Laid{{Path: c.path, Name: c.shown, Kind: c.kind, Size: 7}}
			if diff := cmp.Diff(want, laid); diff != "" {
				t.Fatal(diff)
			}
			if text, err := os.ReadFile(filepath.Join(work, c.path)); err != nil || string(text) != "content" {
				t.Errorf("%q, %v", text, err)
			}
			if all, _ := filepath.Glob(filepath.Join(work, "*")); len(all) != 1 {
				t.Errorf("also made: %q", all)
			}
		})
	}
}

func FuzzACleanNameIsOneShortLine(f *testing.F) {
	for _, name := range oddNames() {
		f.Add(name)
	}
	f.Add(`a/\. ./` + "\u202e\u2028")
	f.Fuzz(func(t *testing.T, name string) {
		clean := runner.CleanName(name)
		bad := func(r rune) bool {
			return r == '/' || r == '\\' || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.IsSpace(r) && r != ' '
		}
		if !utf8.ValidString(clean) || utf8.RuneCountInString(clean) > 80 || strings.ContainsFunc(clean, bad) ||
			strings.Trim(clean, ". ") != clean || runner.CleanName(clean) != clean {
			t.Errorf("%q of %q", clean, name)
		}
	})
}

func TestSeveralFilesOfOneNameStaySeveral(t *testing.T) {
	work, _ := conversation(t)
	var handed []string
	in := runner.Inbox{MaxFile: 10, MaxTotal: 25, Own: func(f *os.File) error {
		st, err := f.Stat()
		handed = append(handed, fmt.Sprint(st.IsDir(), st.Size()))
		return err
	}}
	gone := errors.New("gone")
	lost := runner.Incoming{Open: func() (io.ReadCloser, error) { return nil, gone }}
	laid, err := in.Lay(t.Context(), work, []runner.Incoming{
		sent("document", "a.txt", "one"), sent("document", "a.txt", "two"), sent("document", "b.txt", strings.Repeat("x", 11)), lost,
		sent("document", "a.txt", strings.Repeat("y", 10)), sent("document", "a.txt", strings.Repeat("z", 10)),
	})
	must(t, err)
	var got []string
	for _, l := range laid {
		text, _ := os.ReadFile(filepath.Join(work, l.Path))
		got = append(got, fmt.Sprintf("%s %s %v %v", l.Path, text, errors.Is(l.Err, runner.ErrTooBig), errors.Is(l.Err, gone)))
	}
	want := []string{"inbox/1.txt one false false", "inbox/2.txt two false false", "  true false", "  false true",
		"inbox/4.txt yyyyyyyyyy false false", "  true false"} // the last is too much in all
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if all, _ := filepath.Glob(filepath.Join(work, "inbox/*")); len(all) != 3 {
		t.Errorf("left of what was refused: %q", all)
	}
	if diff := cmp.Diff([]string{"true 0", "false 3", "false 3", "false 10"}, handed, cmp.Transformer("size", func(s string) string {
		if strings.HasPrefix(s, "true") {
			return "true 0" // a folder's size is the file system's affair
		}
		return s
	})); diff != "" {
		t.Errorf("handed over: %s", diff)
	}
	if laid, err = in.Lay(t.Context(), work, []runner.Incoming{sent("document", "a.txt", "later")}); err != nil || laid[0].Path != "inbox/5.txt" {
		t.Errorf("%+v, %v", laid, err)
	}
}

// What an earlier run has left under the inbox's name, or in it, is neither followed nor written to.
func TestTheInboxIsNotLedAstray(t *testing.T) {
	canary := filepath.Join(folder(t), "canary")
	for name, plant := range map[string]func(work string) error{
		"a link to a folder outside": func(work string) error { return os.Symlink(filepath.Dir(canary), filepath.Join(work, "inbox")) },
		"a dangling link":            func(work string) error { return os.Symlink("/nowhere/at/all", filepath.Join(work, "inbox")) },
		"a FIFO":                     func(work string) error { return unix.Mkfifo(filepath.Join(work, "inbox"), 0o600) },
		"a file":                     func(work string) error { return os.WriteFile(filepath.Join(work, "inbox"), nil, 0o600) },
		"a closed folder":            func(work string) error { return os.Mkdir(filepath.Join(work, "inbox"), 0) },
		"links under coming numbers": func(work string) error {
			var errs []error
			must(t, os.Mkdir(filepath.Join(work, "inbox"), 0o700))
			for i := range 60 {
				errs = append(errs, os.Symlink(canary, filepath.Join(work, "inbox", fmt.Sprintf("%d.txt", 1<<20-i))))
			}
			return errors.Join(append(errs, os.Symlink(canary, filepath.Join(work, "inbox/1.txt")))...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.WriteFile(canary, []byte("canary"), 0o600))
			work, _ := conversation(t)
			must(t, plant(work))
			err := asOwner(t, func() error {
				laid, err := runner.Inbox{}.Lay(within(t, patience), work, []runner.Incoming{sent("document", "a.txt", "new")})
				if err != nil || laid[0].Err != nil {
					return fmt.Errorf("%+v, %w", laid, err)
				}
				text, err := os.ReadFile(filepath.Join(work, laid[0].Path))
				if string(text) != "new" {
					err = fmt.Errorf("%q, %w", text, err)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			all, _ := os.ReadDir(filepath.Dir(canary))
			if text, err := os.ReadFile(canary); err != nil || string(text) != "canary" || len(all) != 1 {
				t.Errorf("outside: %q, %v, %d files", text, err, len(all))
			}
		})
	}
}
