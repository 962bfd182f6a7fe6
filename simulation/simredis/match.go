package simredis

// match reports whether s matches a pattern of KEYS or PSUBSCRIBE: *, ?, [ab],
// [^a-c] and \.
func match(pattern, s string) bool {
	for pattern != "" {
		switch pattern[0] {
		case '*':
			for pattern != "" && pattern[0] == '*' {
				pattern = pattern[1:]
			}
			if pattern == "" {
				return true
			}
			for i := range len(s) + 1 {
				if match(pattern, s[i:]) {
					return true
				}
			}
			return false
		case '?':
			if s == "" {
				return false
			}
		case '[':
			if s == "" {
				return false
			}
			var in bool
			if in, pattern = matchClass(pattern[1:], s[0]); !in {
				return false
			}
			s = s[1:]
			continue
		case '\\':
			if len(pattern) > 1 {
				pattern = pattern[1:]
			}
			fallthrough
		default:
			if s == "" || s[0] != pattern[0] {
				return false
			}
		}
		pattern, s = pattern[1:], s[1:]
	}
	return s == ""
}

// matchClass matches one byte with what follows a [, and returns what follows
// the ].
func matchClass(p string, c byte) (in bool, rest string) {
	not := p != "" && p[0] == '^'
	if not {
		p = p[1:]
	}
	for {
		switch {
		case p == "":
			return in != not, ""
		case p[0] == '\\' && len(p) >= 2:
			p = p[1:]
			in = in || p[0] == c
		case p[0] == ']':
			return in != not, p[1:]
		case len(p) >= 3 && p[1] == '-':
			lo, hi := min(p[0], p[2]), max(p[0], p[2])
			in = in || lo <= c && c <= hi
			p = p[2:]
		default:
			in = in || p[0] == c
		}
		p = p[1:]
	}
}
