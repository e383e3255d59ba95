// Checks rules and evaluates expressions with Prometheus' own parser and engine, for tests of alerts and panels.
//
// Standard input is one JSON object, standard output another:
//
//	rules    text of a file of rules; what is wrong with it comes back as errors
//	series   in the notation of Prometheus' own tests, like `a{b="c"} 0+1x10`: a sample every 30 seconds from 0 on
//	queries  [{expr, at}], at in seconds; each comes back as [{labels, value}]
//
// promtool would do the same. It takes 884 packages where this takes 110.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	intervalMs = 30_000
	maxSamples = 1_000_000
)

type request struct {
	Rules   string   `json:"rules"`
	Series  []string `json:"series"`
	Queries []struct {
		Expr string  `json:"expr"`
		At   float64 `json:"at"`
	} `json:"queries"`
}

type element struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

type answer struct {
	Errors  []string    `json:"errors"`
	Results [][]element `json:"results"`
}

func main() {
	answered, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answered); err != nil {
		os.Exit(1)
	}
}

func run() (answer, error) {
	asked, found := request{}, answer{Errors: []string{}, Results: [][]element{}}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return found, err
	}
	grammar := parser.NewParser(parser.Options{})
	if asked.Rules != "" {
		_, wrong := rulefmt.Parse([]byte(asked.Rules), false, model.UTF8Validation, grammar, slog.Default())
		for _, each := range wrong {
			found.Errors = append(found.Errors, each.Error())
		}
	}
	held := make([]storage.Series, 0, len(asked.Series))
	for _, each := range asked.Series {
		made, err := seriesOf(grammar, each)
		if err != nil {
			return found, fmt.Errorf("%s: %w", each, err)
		}
		held = append(held, made)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: maxSamples, Timeout: time.Minute, Parser: grammar})
	for _, each := range asked.Queries {
		result, err := evaluate(engine, holding(held), each.Expr, each.At)
		if err != nil {
			return found, fmt.Errorf("%s: %w", each.Expr, err)
		}
		found.Results = append(found.Results, result)
	}
	return found, nil
}

func evaluate(engine *promql.Engine, from storage.Queryable, expression string, at float64) ([]element, error) {
	when := time.UnixMilli(int64(at * 1000))
	query, err := engine.NewInstantQuery(context.Background(), from, nil, expression, when)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	vector, err := query.Exec(context.Background()).Vector()
	if err != nil {
		return nil, err
	}
	found := make([]element, 0, len(vector))
	for _, each := range vector {
		found = append(found, element{each.Metric.Map(), each.F})
	}
	return found, nil
}

func seriesOf(grammar parser.Parser, description string) (storage.Series, error) {
	identity, values, err := grammar.ParseSeriesDesc(description)
	if err != nil {
		return nil, err
	}
	samples := []chunks.Sample{}
	for number, value := range values {
		if !value.Omitted {
			samples = append(samples, sample{int64(number) * intervalMs, value.Value})
		}
	}
	return storage.NewListSeries(identity, samples), nil
}

// A sample of a float, as chunks.Sample has it.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// holding is a storage of a few series, in memory.
func holding(held []storage.Series) storage.Queryable {
	selecting := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &seriesSet{at: -1}
		for _, each := range held {
			if matches(each.Labels(), matchers) {
				found.series = append(found.series, each)
			}
		}
		return found
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: selecting}}
}

func matches(identity labels.Labels, matchers []*labels.Matcher) bool {
	for _, each := range matchers {
		if !each.Matches(identity.Get(each.Name)) {
			return false
		}
	}
	return true
}

type seriesSet struct {
	series []storage.Series
	at     int
}

func (s *seriesSet) Next() bool {
	s.at++
	return s.at < len(s.series)
}

func (s *seriesSet) At() storage.Series                { return s.series[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
