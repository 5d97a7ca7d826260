package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// A jobsFile is one that is being read. It collects what is wrong, so that all is said at once.
type jobsFile struct {
	name string
	errs []error
}

// An entry is a key and its value.
type entry struct {
	key   string
	where string // the way to it, for an error: job "bridge_health": retries: pause
	line  int
	value ast.Node
}

func (f *jobsFile) refuse(e entry, format string, args ...any) {
	place := fmt.Sprintf("%s:%d: ", f.name, e.line)
	if e.where != "" {
		place += e.where + ": "
	}
	f.errs = append(f.errs, fmt.Errorf("%s%w", place, fmt.Errorf(format, args...)))
}

// parse returns the entries of the jobs.
func (f *jobsFile) parse(file []byte) []entry {
	file = bytes.TrimPrefix(file, []byte("\ufeff"))
	// A key that comes twice is ours to refuse: the parser would stop there.
	words := lexer.Tokenize(string(file))
	if line := tooDeep(words); line > 0 {
		f.refuse(entry{line: line}, "more than %d brackets or dashes one within the other", deepest)
		return nil
	}
	parsed, err := parser.Parse(words, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		f.refuseSyntax(file, err)
		return nil
	}
	var body ast.Node
	for _, doc := range parsed.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			f.refuse(entry{line: lineOf(doc.Body)}, "a second document: put all jobs into the first")
		default:
			body = doc.Body
		}
	}
	if body == nil {
		return nil
	}
	return f.entries(entry{line: lineOf(body), value: body})
}

// deepest is how many brackets and dashes may be open at a time, which is far more than a job's arguments
// need. What the parser takes grows with the square of it: 200 kB of brackets took 24 GB.
const deepest = 100

// tooDeep is the line in which there are more; 0: there are none.
func tooDeep(words token.Tokens) int {
	depth, dashes, line := 0, 0, 0
	for _, w := range words {
		if w.Position.Line != line {
			line, dashes = w.Position.Line, 0
		}
		switch w.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType:
			dashes++
		}
		if depth+dashes > deepest {
			return line
		}
	}
	return 0
}

// bare is a value that YAML takes for an alias or refuses, such as a cron spec without quotes.
var bare = regexp.MustCompile(`:\s+[*@]`)

func (f *jobsFile) refuseSyntax(file []byte, err error) {
	var syntax yaml.Error
	if !errors.As(err, &syntax) || syntax.GetToken() == nil {
		f.refuse(entry{line: 1}, "it is no YAML: %w", err)
		return
	}
	line := syntax.GetToken().Position.Line
	hint := ""
	if lines := bytes.Split(file, []byte("\n")); line >= 1 && line <= len(lines) && bare.Match(lines[line-1]) {
		hint = "; put what begins with * or @ in quotes"
	}
	f.refuse(entry{line: line}, "it is no YAML: %s%s", syntax.GetMessage(), hint)
}

// entries are those of a mapping, each key once.
func (f *jobsFile) entries(of entry) []entry {
	mapping, ok := of.value.(*ast.MappingNode)
	if !ok {
		f.refuse(of, "%s: it must be names, each with a colon and a value", shown(of.value))
		return nil
	}
	lines := map[string]int{}
	var entries []entry
	for _, v := range mapping.Values {
		e := entry{key: v.Key.GetToken().Value, line: lineOf(v.Key), value: v.Value}
		e.where = of.where + ": " + e.key
		if of.where == "" {
			e.where = fmt.Sprintf("job %.80q", e.key)
		}
		if _, scalar := v.Key.(ast.ScalarNode); !scalar || v.Key.IsMergeKey() {
			f.refuse(entry{where: of.where, line: e.line}, "%s: a key must be a plain name", v.Key)
			continue
		}
		if first, twice := lines[e.key]; twice {
			f.refuse(e, "it stands in line %d already: leave one out", first)
			continue
		}
		lines[e.key] = e.line
		entries = append(entries, e)
	}
	return entries
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// shown is a value as an error names it.
func shown(n ast.Node) string {
	switch n := n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.LiteralNode:
		return fmt.Sprintf("%.40q", n.Value.Value)
	}
	return fmt.Sprintf("%.40q", n.String())
}

func text(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		if n.Value != "" {
			return n.Value, nil
		}
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value), nil
	}
	return "", errors.New("it must be a text")
}

func boolean(n ast.Node) (bool, error) {
	if n, ok := n.(*ast.BoolNode); ok {
		return n.Value, nil
	}
	return false, errors.New("it must be true or false")
}

func count(n ast.Node) (int, error) {
	if n, ok := n.(*ast.IntegerNode); ok && decimal(n) {
		if i, ok := n.Value.(uint64); ok && i <= math.MaxInt32 {
			return int(i), nil
		}
	}
	return 0, errors.New("it must be a whole number, such as 3")
}

func duration(n ast.Node) (time.Duration, error) {
	var said string
	switch n := n.(type) {
	case *ast.StringNode:
		said = n.Value
	case *ast.IntegerNode: // none but 0 is a duration
		said = n.Token.Value
	}
	d, err := time.ParseDuration(said)
	switch {
	case err != nil:
		return 0, errors.New("it must be a duration with its unit, such as 30s")
	case d < 0:
		return 0, errors.New("it must not be negative")
	}
	return d, nil
}

// oneOf reads a value by the word for it.
func oneOf[T fmt.Stringer](all ...T) func(ast.Node) (T, error) {
	return func(n ast.Node) (T, error) {
		said, _ := text(n)
		var words []string
		for _, one := range all {
			if one.String() == said {
				return one, nil
			}
			words = append(words, one.String())
		}
		var none T
		return none, fmt.Errorf("it must be one of: %s", strings.Join(words, ", "))
	}
}

// decimal is false for 010, which is 8 to some readers of YAML and 10 to others.
func decimal(n *ast.IntegerNode) bool {
	digits := strings.TrimLeft(n.Token.Value, "+-")
	return len(digits) == 1 || digits[0] != '0' || digits[1] < '0' || digits[1] > '9'
}

// jsonOf is the value as JSON.
func jsonOf(n ast.Node) (json.RawMessage, error) {
	plain, err := plainOf(n)
	if err != nil {
		return nil, err
	}
	return json.Marshal(plain)
}

func plainOf(n ast.Node) (any, error) {
	switch n := n.(type) {
	case *ast.NullNode:
		return nil, nil
	case *ast.IntegerNode:
		if !decimal(n) {
			return nil, fmt.Errorf("%s: write it without the leading 0", n)
		}
		return n.Value, nil
	case *ast.StringNode, *ast.BoolNode, *ast.FloatNode:
		return n.(ast.ScalarNode).GetValue(), nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.SequenceNode:
		list := make([]any, 0, len(n.Values))
		for _, v := range n.Values {
			item, err := plainOf(v)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		return list, nil
	case *ast.MappingNode:
		return plainMapping(n)
	}
	return nil, fmt.Errorf("%s: write the value itself, without anchors, aliases or tags", shown(n))
}

func plainMapping(n *ast.MappingNode) (map[string]any, error) {
	all := make(map[string]any, len(n.Values))
	for _, v := range n.Values {
		key := v.Key.GetToken().Value
		if _, twice := all[key]; twice {
			return nil, fmt.Errorf("%s is given twice: leave one out", key)
		}
		value, err := plainOf(v.Value)
		if err != nil {
			return nil, err
		}
		all[key] = value
	}
	return all, nil
}
