package httpapi

import (
	"strings"

	"lockkeeper/internal/locks"
)

// maxShownBody is the largest body, in bytes, of a request that names the contenders it means.
const maxShownBody = 256 << 10

// shownForm is the fields that name the only contenders a request may touch.
type shownForm struct{ shown locks.Shown }

func (f *shownForm) take(name string, v value) (known bool, p *problem) {
	switch name {
	case "lease_ids":
		f.shown.LeaseIDs, p = textList(name, v)
	case "znodes":
		f.shown.Znodes, p = textList(name, v)
	default:
		return false, nil
	}
	return true, p
}

// textList reads a list of strings: an array in the body, in the query with commas between. How many it may have, the
// manager decides.
func textList(field string, v value) ([]string, *problem) {
	list := v.list
	if v.kind == isText && v.source == fromQuery {
		list = strings.Split(v.text, ",")
	} else if v.kind != isList {
		return nil, invalid(field, "it must be an array of strings; in the query, values with commas between")
	}
	if len(list) == 0 {
		return nil, invalid(field, "it must name at least one, or be left out")
	}
	for _, text := range list {
		if looksLikeToken(text) {
			return nil, invalid(field, tokenHint)
		}
	}
	return list, nil
}
