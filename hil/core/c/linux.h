/* What of Linux the tick uses, declared by hand as in libc.h. */

typedef long ssize_t;
typedef int clockid_t;
typedef unsigned long nfds_t;
struct timespec { long tv_sec, tv_nsec; };
struct pollfd { int fd; short events, revents; };
struct iovec { void *iov_base; size_t iov_len; };
struct msghdr {
  void *msg_name;
  unsigned msg_namelen;
  struct iovec *msg_iov;
  size_t msg_iovlen;
  void *msg_control;
  size_t msg_controllen;
  int msg_flags;
};
struct mmsghdr { struct msghdr msg_hdr; unsigned msg_len; };
struct cmsghdr { size_t cmsg_len; int cmsg_level, cmsg_type; };

enum { CLOCK_REALTIME = 0, CLOCK_MONOTONIC = 1, TIMER_ABSTIME = 1, POLLIN = 1, MSG_DONTWAIT = 0x40 };
enum { SOL_SOCKET = 1, SO_TIMESTAMPNS = 35, EINTR = 4, EAGAIN = 11, ENOBUFS = 105 };

int *__errno_location(void);
#define errno (*__errno_location())
int clock_gettime(clockid_t, struct timespec *), nanosleep(const struct timespec *, struct timespec *);
int clock_nanosleep(clockid_t, int, const struct timespec *, struct timespec *);
int ppoll(struct pollfd *, nfds_t, const struct timespec *, const void *);
int recvmmsg(int, struct mmsghdr *, unsigned, int, struct timespec *);
ssize_t read(int, void *, size_t), send(int, const void *, size_t, int);
