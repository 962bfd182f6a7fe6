/* What a process is preloaded with whose clock is to be changed, or whose disk
 * is to lose power: it shows the process another wall clock, and notes how much
 * of each file was synced, until that is removed. Both go through a small file that the harness maps
 * as well; its layout is that of shim.go. Processes of one machine share it.
 *
 * The true time is asked for by raw system calls. To look up the function of
 * the C library that is overridden here would call the allocator, and the
 * allocator asks for the time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define FILES 240 /* so that it all fits into a page */
#define SECOND 1000000000LL

struct file {
	int64_t inode;
	int64_t synced; /* bytes */
};

static struct {
	int64_t loaded;  /* how many processes have this here */
	int64_t version; /* of the clock; odd while it is changed */
	int64_t offset;  /* ns that the clock is ahead at the instant since */
	int64_t since;   /* true time, ns */
	int64_t drift;   /* how much faster than true, in billionths */
	int64_t stalled; /* whether syncs stand still */
	int64_t waiting; /* how many do */
	int64_t missed;  /* how many syncs found no room in files */
	int64_t reads;   /* how often the wall clock was read */
	struct file files[FILES];
} *shared;

__attribute__((constructor)) static void load(void)
{
	const char *path = getenv("LOCKCHAOS_SHIM");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *p = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return;
	shared = p;
	__atomic_add_fetch(&shared->loaded, 1, __ATOMIC_SEQ_CST);
}

/* shown is what the clock shows at a true time. */
static int64_t shown(int64_t now)
{
	int64_t version, offset, since, drift;
	do {
		version = __atomic_load_n(&shared->version, __ATOMIC_SEQ_CST);
		offset = __atomic_load_n(&shared->offset, __ATOMIC_SEQ_CST);
		since = __atomic_load_n(&shared->since, __ATOMIC_SEQ_CST);
		drift = __atomic_load_n(&shared->drift, __ATOMIC_SEQ_CST);
	} while (version % 2 != 0 || version != __atomic_load_n(&shared->version, __ATOMIC_SEQ_CST));
	if (drift != 0)
		offset += (int64_t)((__int128)(now - since) * drift / SECOND);
	return now + offset;
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = syscall(SYS_clock_gettime, id, ts);
	if (r == 0 && shared && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		__atomic_add_fetch(&shared->reads, 1, __ATOMIC_SEQ_CST);
		int64_t t = shown(ts->tv_sec * SECOND + ts->tv_nsec);
		ts->tv_sec = t / SECOND;
		ts->tv_nsec = t % SECOND;
	}
	return r;
}

int gettimeofday(struct timeval *tv, void *zone)
{
	struct timespec ts;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *to)
{
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
		return (time_t)-1;
	if (to)
		*to = ts.tv_sec;
	return ts.tv_sec;
}

/* note keeps how much of a file is on the disk. */
static void note(int64_t inode, int64_t size)
{
	struct file *f = NULL;
	for (int i = 0; i < FILES && !f; i++)
		if (__atomic_load_n(&shared->files[i].inode, __ATOMIC_SEQ_CST) == inode)
			f = &shared->files[i];
	for (int i = 0; i < FILES && !f; i++) {
		int64_t none = 0;
		if (__atomic_compare_exchange_n(&shared->files[i].inode, &none, inode, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			f = &shared->files[i];
	}
	if (!f) {
		__atomic_add_fetch(&shared->missed, 1, __ATOMIC_SEQ_CST);
		return;
	}
	int64_t had = __atomic_load_n(&f->synced, __ATOMIC_SEQ_CST);
	while (had < size && !__atomic_compare_exchange_n(&f->synced, &had, size, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

/* forget makes room: a file is gone, and another may get its inode. */
static void forget(int64_t inode)
{
	for (int i = 0; i < FILES; i++)
		if (__atomic_load_n(&shared->files[i].inode, __ATOMIC_SEQ_CST) == inode) {
			__atomic_store_n(&shared->files[i].synced, 0, __ATOMIC_SEQ_CST);
			__atomic_store_n(&shared->files[i].inode, 0, __ATOMIC_SEQ_CST);
		}
}

/* inode is that of a file by its name; 0 for none, or if nobody asks. */
static int64_t inode(const char *path)
{
	struct stat found;
	return shared && lstat(path, &found) == 0 && S_ISREG(found.st_mode) ? (int64_t)found.st_ino : 0;
}

int unlink(const char *path)
{
	int64_t gone = inode(path);
	int r = syscall(SYS_unlinkat, AT_FDCWD, path, 0);
	if (r == 0 && gone)
		forget(gone);
	return r;
}

int rename(const char *from, const char *to)
{
	int64_t gone = inode(to), moved = inode(from);
	int r = syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
	if (r == 0 && gone && gone != moved)
		forget(gone);
	return r;
}

static int synced(long call, int fd)
{
	struct stat before, after;
	int known = shared && fstat(fd, &before) == 0 && S_ISREG(before.st_mode);
	if (shared && __atomic_load_n(&shared->stalled, __ATOMIC_SEQ_CST)) {
		struct timespec pause = {0, 1000000};
		__atomic_add_fetch(&shared->waiting, 1, __ATOMIC_SEQ_CST);
		while (__atomic_load_n(&shared->stalled, __ATOMIC_SEQ_CST))
			syscall(SYS_nanosleep, &pause, NULL);
		__atomic_add_fetch(&shared->waiting, -1, __ATOMIC_SEQ_CST);
	}
	int r = syscall(call, fd);
	/* One that was removed meanwhile, or before, has no name to be found by. */
	if (r == 0 && known && fstat(fd, &after) == 0 && after.st_nlink > 0)
		note(before.st_ino, before.st_size);
	return r;
}

int fsync(int fd) { return synced(SYS_fsync, fd); }

int fdatasync(int fd) { return synced(SYS_fdatasync, fd); }
