package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-analyze/charts"
)

// chartDir is where the charts of BENCHMARKS.md are, below the root of the repository.
const chartDir = "bench/charts"

const (
	chartWidth  = 900
	chartHeight = 420
)

// chart is one picture of a result: a file in chartDir, and what it shows for those who do not see it.
type chart struct {
	file, title string
	svg         []byte
}

// markdown shows the charts.
func (c chart) markdown() string { return fmt.Sprintf("![%s](%s/%s)\n", c.title, chartDir, c.file) }

// charts draws all results that there are.
func (b *bench) charts() ([]chart, error) {
	var all []func() (chart, error)
	add := func(measured bool, draw func() (chart, error)) {
		if measured {
			all = append(all, draw)
		}
	}
	add(b.ownTable != nil, func() (chart, error) {
		return b.ownTable.bars("own.svg", "Cycles per second, each client has a lock of its own", append([]string{gatewaySide, embeddedSide, etcdSide}, directSides...))
	})
	add(b.ownTable != nil, func() (chart, error) {
		return b.ownTable.stacked(b.ownTable.find(64, false), "cost.svg", "µs of processor time for one cycle, 64 clients, locks of their own")
	})
	add(b.hotTable != nil, func() (chart, error) {
		return b.hotTable.bars("hot.svg", "Cycles per second, all clients want one lock", append([]string{gatewaySide, embeddedSide}, directSides...))
	})
	add(b.limitedTable != nil, func() (chart, error) {
		return b.limitedTable.bars("limited.svg", "Cycles per second where ZooKeeper is the bottleneck", append([]string{gatewaySide}, directSides...))
	})
	add(len(b.opened) != 0, b.openChart)
	var drawn []chart
	for _, draw := range all {
		c, err := draw()
		if err != nil {
			return nil, fmt.Errorf("charts: %w", err)
		}
		drawn = append(drawn, c)
	}
	return drawn, nil
}

// bars has a group for each line, with a bar for each side.
func (t *table) bars(file, title string, sides []string) (chart, error) {
	var values [][]float64
	for _, s := range sides {
		var row []float64
		for i := range t.lines {
			row = append(row, over(t.rounds(i, s, rate)).median)
		}
		values = append(values, row)
	}
	option := charts.NewBarChartOptionWithData(values)
	for _, l := range t.lines {
		option.CategoryAxis.Labels = append(option.CategoryAxis.Labels, l.work.clientsLabel())
	}
	option.CategoryAxis.Title, option.CategoryAxis.TitleFontStyle = t.unmeasured(sides), charts.FontStyle{FontSize: 10}
	option.Title.Text, option.Legend = title, legend(sides)
	option.ValueFormatter, option.ValueAxis = thousands, []charts.ValueAxisOption{{Min: charts.Ptr(0.0)}}
	return draw(file, title, func(p *charts.Painter) error { return p.BarChart(option) })
}

// clientsLabel says how many clients work. What they do is in the chart's title.
func (w work) clientsLabel() string {
	if w.clients == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", w.clients)
}

// unmeasured says which of the sides have no bar in which line, "" when all have one.
func (t *table) unmeasured(sides []string) string {
	var remarks []string
	for _, l := range t.lines {
		var missing []string
		for _, name := range sides {
			if len(only(l.sides, name)) == 0 {
				missing = append(missing, name)
			}
		}
		if len(missing) != 0 {
			remarks = append(remarks, l.work.clientsLabel()+": no bar for what is not measured there ("+strings.Join(missing, "; ")+")")
		}
	}
	return strings.Join(remarks, ". ")
}

// stacked has a bar for each side of a line, of what its processes spend.
func (t *table) stacked(line int, file, title string) (chart, error) {
	kinds := []figure{serverMicros, storeMicros, clientsMicros}
	values := make([][]float64, len(kinds))
	var names []string
	for i := len(t.lines[line].sides) - 1; i >= 0; i-- { // the first on top
		s := t.lines[line].sides[i]
		names = append(names, s.name+"   ")
		for k, f := range kinds {
			values[k] = append(values[k], over(t.rounds(line, s.name, f)).median)
		}
	}
	option := charts.NewBarChartOptionWithData(values)
	option.Horizontal, option.StackSeries = true, charts.Ptr(true)
	option.CategoryAxis.Labels, option.CategoryAxis.LabelFontStyle = names, charts.FontStyle{FontSize: 10}
	option.Title.Text, option.Legend = title, legend([]string{"server", "ZooKeeper", "clients"})
	option.ValueFormatter, option.ValueAxis = thousands, []charts.ValueAxisOption{{Min: charts.Ptr(0.0)}}
	return draw(file, title, func(p *charts.Painter) error { return p.BarChart(option) })
}

// openChart has a line for each load of the gateway and of zk.Lock, over the percentiles.
func (b *bench) openChart() (chart, error) {
	const title = "Milliseconds from when an acquire is due, open loop, 64 clients"
	var values [][]float64
	var names, points []string
	for _, r := range b.opened {
		if r.side != gatewaySide && r.side != zkLockOwnSide {
			continue
		}
		var row []float64
		for _, p := range openPoints[:len(openPoints)-1] {
			row = append(row, float64(r.latency.ValueAtQuantile(p))/1e3)
		}
		values, names = append(values, row), append(names, fmt.Sprintf("%s, %.0f %%", r.side, r.load*100))
	}
	for _, p := range openPoints[:len(openPoints)-1] {
		points = append(points, fmt.Sprintf("p%g", p))
	}
	option := charts.NewLineChartOptionWithData(values)
	option.XAxis.Labels = points
	option.Title.Text, option.Legend = title, legend(names)
	option.YAxis = []charts.YAxisOption{{Min: charts.Ptr(0.0)}}
	return draw("open.svg", title, func(p *charts.Painter) error { return p.LineChart(option) })
}

// legend stands below the title. The spaces keep names apart where a browser's letters are wider than the library's.
func legend(names []string) charts.LegendOption {
	spaced := make([]string, len(names))
	for i, name := range names {
		spaced[i] = name + "   "
	}
	return charts.LegendOption{SeriesNames: spaced, Offset: charts.OffsetStr{Top: "30"}, FontStyle: charts.FontStyle{FontSize: 10}}
}

func draw(file, title string, render func(*charts.Painter) error) (chart, error) {
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: chartWidth, Height: chartHeight})
	if err := render(p); err != nil {
		return chart{}, fmt.Errorf("%s: %w", file, err)
	}
	svg, err := p.Bytes()
	return chart{file, title, svg}, err
}

// writeCharts puts the files into chartDir.
func writeCharts(all []chart) error {
	if err := os.MkdirAll(chartDir, 0o755); err != nil {
		return fmt.Errorf("charts: %w", err)
	}
	for _, c := range all {
		if err := os.WriteFile(filepath.Join(chartDir, c.file), append(c.svg, '\n'), 0o644); err != nil {
			return fmt.Errorf("charts: %w", err)
		}
	}
	return nil
}
