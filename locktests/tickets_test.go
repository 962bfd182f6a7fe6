package locktests

import "fmt"

// plainKeys are the keys of a plain lock.
func plainKeys(key, request string) []string {
	return []string{key, key + ":released:" + request, key + ":tickets", key + ":token"}
}

// held is how a request and its owner are told to the scripts of a plain lock.
func held(request, owner string) string { return "held " + request + " " + owner }

// ticket is what a request draws. No client counts who hears of it.
func ticket(request, inbox, owner string, lease, tokenLife int) string {
	return fmt.Sprintf("%s %d %d 0 %d %s%s", request, lease, tokenLife, len(inbox), inbox, owner)
}
