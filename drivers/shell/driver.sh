#!/usr/bin/env bash
# The smallest driver: SET NX PX and an owner-checked release, by redis-cli.
#   lockchaos run --lock 'exec:drivers/shell/driver.sh' --topology single
# It answers one request at a time. What redis-cli does not answer for certain
# is "info".
set -u

field() { # field NAME: the value of a string or a number of the request
	sed -nE "s/.*\"$1\":\"?([^\",}]*)\"?.*/\1/p" <<<"$line"
}

redis() { # redis COMMAND...: asks the master; fails where the answer is not known
	local host=$address
	if [ -n "$master" ]; then
		host=$(timeout "$wait" redis-cli -h "${address%:*}" -p "${address##*:}" SENTINEL get-master-addr-by-name "$master" 2>/dev/null | paste -sd:) || return 1
	fi
	[ -n "$host" ] || return 1
	timeout "$wait" redis-cli $follow -e --no-auth-warning -h "${host%:*}" -p "${host##*:}" "$@" 2>/dev/null
}

say() { printf '{"re":%s,%s}\n' "$id" "$1"; }

release='if redis.call("GET",KEYS[1]) == ARGV[1] then return redis.call("DEL",KEYS[1]) end return 0'
extend='if redis.call("GET",KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE",KEYS[1],ARGV[2]) end return 0'

while IFS= read -r line; do
	id=$(field id)
	case $(field op) in
	hello)
		master=$(field master)
		wait=$((($(field timeout_ms) + 999) / 1000))
		address=$(sed -nE 's/.*"addr":"([^"]*)".*/\1/p' <<<"$line")
		follow=
		[ "$(field topology)" = cluster ] && follow=-c # redis-cli goes where the slot is
		if [ "$(field topology)" = independent ]; then
			say '"result":"fail","why":"it is a lock on one server, behind sentinels or on a cluster"'
		else
			say '"protocol":1,"name":"shell","version":"1","language":"bash","promises":{"extend":true,"release_tells":true},"keys":["{name}"]'
		fi
		;;
	ping) say '"result":"ok"' ;;
	acquire)
		lock=$(field lock) lease=$(field lease_ms)
		if answer=$(redis SET "$lock" "$id-$$" NX PX "$lease"); then
			if [ "$answer" = OK ]; then
				say "\"result\":\"ok\",\"hold\":\"$lock/$id-$$\""
			else
				say '"result":"fail","why":"taken"'
			fi
		else
			say '"result":"info","why":"redis-cli got no answer"'
		fi
		;;
	release | extend)
		hold=$(field hold) script=$release
		[ "$(field op)" = extend ] && script=$extend
		if answer=$(redis EVAL "$script" 1 "${hold%/*}" "${hold##*/}" "$(field lease_ms)"); then
			case $answer in
			1) say '"result":"ok"' ;;
			0) say '"result":"fail","why":"not held"' ;;
			*) say '"result":"info","why":"strange answer"' ;;
			esac
		else
			say '"result":"info","why":"redis-cli got no answer"'
		fi
		;;
	*) say '"result":"unsupported"' ;;
	esac
done
