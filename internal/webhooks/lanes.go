package webhooks

// lanes is a heap, the first due first; among those that are due at once the one
// whose head happened first.
type lanes []*lane

func (h lanes) Len() int { return len(h) }
func (h lanes) Less(i, j int) bool {
	if d := h[i].due.Compare(h[j].due); d != 0 {
		return d < 0
	}
	return h[i].line[0].out.Order < h[j].line[0].out.Order
}
func (h lanes) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *lanes) Push(x any)   { l := x.(*lane); l.index = len(*h); *h = append(*h, l) }
func (h *lanes) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h, l.index = old[:len(old)-1], -1
	return l
}
