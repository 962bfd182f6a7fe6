/* What a server is preloaded with that listens where it announces itself, and
 * that can't be told otherwise: it listens at another address instead, and
 * dials from there. So a proxy can stand at the address that it announces, and
 * knows who dials.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

static in_addr_t announced = INADDR_NONE, listening = INADDR_NONE;
static int (*real_bind)(int, const struct sockaddr *, socklen_t);
static int (*real_connect)(int, const struct sockaddr *, socklen_t);

__attribute__((constructor)) static void load(void)
{
	const char *a = getenv("LOCKCHAOS_ANNOUNCED"), *l = getenv("LOCKCHAOS_LISTENING");
	real_bind = dlsym(RTLD_NEXT, "bind");
	real_connect = dlsym(RTLD_NEXT, "connect");
	if (a && l) {
		announced = inet_addr(a);
		listening = inet_addr(l);
	}
}

int bind(int fd, const struct sockaddr *to, socklen_t length)
{
	if (to && to->sa_family == AF_INET && length >= sizeof(struct sockaddr_in) && announced != INADDR_NONE) {
		struct sockaddr_in other = *(const struct sockaddr_in *)to;
		if (other.sin_addr.s_addr == announced) {
			other.sin_addr.s_addr = listening;
			return real_bind(fd, (struct sockaddr *)&other, sizeof other);
		}
	}
	return real_bind(fd, to, length);
}

int connect(int fd, const struct sockaddr *to, socklen_t length)
{
	if (to && to->sa_family == AF_INET && length >= sizeof(struct sockaddr_in) && listening != INADDR_NONE &&
	    ntohl(((const struct sockaddr_in *)to)->sin_addr.s_addr) >> 24 == 127) {
		struct sockaddr_in from;
		socklen_t n = sizeof from;
		if (getsockname(fd, (struct sockaddr *)&from, &n) == 0 && from.sin_family == AF_INET &&
		    from.sin_addr.s_addr == INADDR_ANY && from.sin_port == 0) {
			int yes = 1; /* the port is chosen by connect, which knows more that are free */
			setsockopt(fd, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &yes, sizeof yes);
			from.sin_addr.s_addr = listening;
			real_bind(fd, (struct sockaddr *)&from, sizeof from); /* else the process is asked for */
		}
	}
	return real_connect(fd, to, length);
}
