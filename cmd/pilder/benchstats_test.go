package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// percentile gives the smallest value that p percent do not exceed; 0 of nothing.
func percentile(of []time.Duration, p int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

// median is the middle, or the mean of the two in the middle.
func median(of []time.Duration) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// bootstrap gives the 95 % interval of the median: the middle of 10,000 medians of samples drawn from the sample. Always the
// same draws, so that the same measurements give the same interval.
func bootstrap(of []time.Duration) (low, high time.Duration) {
	if len(of) == 0 {
		return 0, 0
	}
	const draws = 10_000
	random := rand.New(rand.NewPCG(1, 2))
	medians, drawn := make([]time.Duration, draws), make([]time.Duration, len(of))
	for i := range medians {
		for j := range drawn {
			drawn[j] = of[random.IntN(len(of))]
		}
		medians[i] = median(drawn)
	}
	slices.Sort(medians)
	return medians[draws*25/1000], medians[draws*975/1000-1]
}

// show writes a time with as many digits as mean something.
func show(d time.Duration) string {
	if d < 10*time.Millisecond && d > -10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
}

func signed(d time.Duration) string {
	if d > 0 {
		return "+" + show(d)
	}
	return show(d)
}

func TestBenchNumbers(t *testing.T) {
	ms := func(of ...int) (all []time.Duration) {
		for _, n := range of {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	hundred := []time.Duration{}
	for i := range 100 {
		hundred = append(hundred, time.Duration((i*37)%100+1)*time.Millisecond) // 1 to 100, in disorder
	}
	for name, c := range map[string]struct{ got, want time.Duration }{
		"the middle of three":                  {median(ms(9, 1, 5)), 5 * time.Millisecond},
		"between the two middle ones of four":  {median(ms(4, 1, 100, 2)), 3 * time.Millisecond},
		"the middle of nothing":                {median(nil), 0},
		"95 of 100 do not exceed the 95th":     {percentile(hundred, 95), 95 * time.Millisecond},
		"the 95th of two is the larger one":    {percentile(ms(3, 7), 95), 7 * time.Millisecond},
		"the 95th of thirty is the 29th":       {percentile(ascending(30), 95), 29 * time.Millisecond},
		"a sample without spread has no doubt": {spread(bootstrap(ms(5, 5, 5, 5))), 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
	if low, high := bootstrap(hundred); low < 38*time.Millisecond || low > 46*time.Millisecond || high < 55*time.Millisecond || high > 63*time.Millisecond {
		t.Errorf("interval of the median of 1 to 100 ms: %s to %s, want about 40.5 to 60.5 (binomial)", low, high)
	}
}

func ascending(n int) (all []time.Duration) {
	for i := range n {
		all = append(all, time.Duration(i+1)*time.Millisecond)
	}
	return all
}

func spread(low, high time.Duration) time.Duration { return high - low }
