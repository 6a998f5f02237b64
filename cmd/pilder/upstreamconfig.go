package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"pilder/configs"
	"pilder/gateway/pipedream"
	"pilder/gateway/upstream"
	"pilder/policy"
)

// upstreamSetting is one entry of upstreams in pilder.yaml. docs/upstream.md explains the keys.
type upstreamSetting struct {
	Slug             string                  `yaml:"slug"`
	Name             policy.Text             `yaml:"name"`
	Hint             policy.Text             `yaml:"hint"`
	URL              string                  `yaml:"url"`
	Command          []string                `yaml:"command"`
	Folder           string                  `yaml:"folder"`
	Env              map[string]string       `yaml:"env"`
	Shared           bool                    `yaml:"shared"`
	Auth             upstream.Auth           `yaml:"auth"`
	Header           string                  `yaml:"header"`
	Headers          map[string]string       `yaml:"headers"`
	Companies        []policy.CompanyID      `yaml:"companies"`
	Tools            map[string]policy.Class `yaml:"tools"`
	TrustAnnotations bool                    `yaml:"trust_annotations"`
	Review           string                  `yaml:"review"`
	Timeout          string                  `yaml:"timeout"`
	OAuth            struct {
		ClientID   string   `yaml:"client_id"`
		Scopes     []string `yaml:"scopes"`
		Audience   string   `yaml:"audience"`
		NoResource bool     `yaml:"no_resource"`
	} `yaml:"oauth"`
}

var companyShape = regexp.MustCompile(`^com_[a-z0-9]+$`)

// readUpstreams reads the list from the file itself: tools and variables have names whose case matters, which viper forgets.
// base is where a relative folder starts.
func readUpstreams(file, base string) ([]upstream.Spec, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	var whole struct {
		Upstreams yaml.Node `yaml:"upstreams"`
	}
	if err := yaml.Unmarshal(text, &whole); err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	if whole.Upstreams.IsZero() {
		return nil, nil
	}
	list, err := yaml.Marshal(&whole.Upstreams)
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	var settings []upstreamSetting
	dec := yaml.NewDecoder(bytes.NewReader(list))
	dec.KnownFields(true)
	if err := dec.Decode(&settings); err != nil {
		return nil, fmt.Errorf("upstreams (line %d of %s): %w", whole.Upstreams.Line, file, err)
	}
	var specs []upstream.Spec
	for _, s := range settings {
		spec, err := s.spec(base)
		if err != nil {
			return nil, fmt.Errorf("upstreams: %q: %w", s.Slug, err)
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// spec checks what the connector cannot: addresses, companies, and that no app has the name already.
func (s upstreamSetting) spec(base string) (upstream.Spec, error) {
	spec := upstream.Spec{
		Slug: s.Slug, Name: s.Name, Hint: s.Hint, URL: s.URL, Command: s.Command, Folder: s.Folder, Env: s.Env, Shared: s.Shared, Auth: s.Auth,
		Header: s.Header, Headers: s.Headers, Companies: s.Companies, Tools: s.Tools, TrustAnnotations: s.TrustAnnotations,
		ReviewAll: s.Review == "all", OAuth: upstream.OAuth(s.OAuth),
	}
	if s.URL != "" {
		if err := checkURL("url", s.URL); err != nil {
			return spec, err
		}
	}
	if !slices.Contains([]string{"", "changes", "all"}, s.Review) {
		return spec, fmt.Errorf("review must be changes or all, not %.20q", s.Review)
	}
	for _, c := range s.Companies {
		if !companyShape.MatchString(string(c)) {
			return spec, fmt.Errorf("companies has %.40q, which is no id; see: pilder company list", c)
		}
	}
	if s.Timeout != "" {
		d, err := time.ParseDuration(s.Timeout)
		if err != nil || d < time.Second || d > 70*time.Second {
			return spec, fmt.Errorf("timeout must be 1s to 70s, not %.20q", s.Timeout)
		}
		spec.Timeout = d
	}
	if spec.Folder != "" && !filepath.IsAbs(spec.Folder) {
		folder, err := filepath.Abs(filepath.Join(base, spec.Folder))
		if err != nil {
			return spec, err
		}
		spec.Folder = folder
	}
	apps, err := pipedream.ReadApps(configs.Apps())
	if err != nil {
		return spec, err
	}
	if slices.ContainsFunc(apps, func(a pipedream.App) bool { return strings.EqualFold(a.Slug, s.Slug) }) {
		return spec, errors.New("there is an app of this name")
	}
	return spec, nil
}
