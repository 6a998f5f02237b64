package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ofCompany finds what a statement reads or changes that belongs to a company's people.
var ofCompany = regexp.MustCompile(`\b(?:FROM|JOIN|UPDATE|INTO)\s+(approval|account|app_wait|away|credential|link|undo)\b`)

// named finds a company in a condition; one that a caller brings is looked for there.
var named = regexp.MustCompile(`company_id|\boneOfTheirs\b|\+ ?where\b`)

// acrossCompanies are the functions whose statements are about all companies, and why.
var acrossCompanies = map[string]string{
	"RecoverCalls":        "what dead processes left, whose ever it is",
	"sweepApproved":       "wake-ups that were lost, whose ever they are",
	"tidy":                "what serves nobody any more",
	"TakeAccountsToCheck": "each account in its turn",
	"ExpireApprovals":     "time passes for everybody",
}

func TestEveryStatementAboutWhatIsSomebodysNamesTheirCompany(t *testing.T) {
	found := map[string]bool{}
	for _, path := range need(filepath.Glob("*.go"))(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source := need(os.ReadFile(path))(t)
		files := token.NewFileSet()
		f := need(parser.ParseFile(files, path, source, 0))(t)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				var text string
				switch e := n.(type) {
				case *ast.BasicLit, *ast.BinaryExpr: // one text may be put together of several
					text = string(source[files.Position(e.Pos()).Offset:files.Position(e.End()).Offset])
				default:
					return true
				}
				if !strings.Contains(text, "`") && !strings.Contains(text, `"`) {
					return true
				}
				_, condition, has := strings.Cut(text, "WHERE")
				if has && !strings.Contains(text, "VALUES") && ofCompany.MatchString(text) && !named.MatchString(condition) {
					found[fn.Name.Name] = true
					if acrossCompanies[fn.Name.Name] == "" {
						t.Errorf("%s: %s", files.Position(n.Pos()), text)
					}
				}
				return false
			})
		}
	}
	for name := range acrossCompanies {
		if !found[name] {
			t.Errorf("%s has no such statement any more", name)
		}
	}
}
