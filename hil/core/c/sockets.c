/* A tick with the sends and receives on sockets. Frames, their times and what is dropped are those of
   hil.bus.python_can; as in tick.c, whatever is not ordinary is Python's. */

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

enum { BATCH = 16, CLASSIC_RECORD = 16, FD_RECORD = 72 };

static const long long SPIN = 25000; /* Looking for frames costs less than to be woken by them, so long [ns]. */

static const unsigned LONG_ID = 0x80000000u, ASKS = 0x40000000u, REPORTS = 0x20000000u; /* linux/can.h */

static long long clock_of(clockid_t id)
{
  struct timespec t;
  clock_gettime(id, &t);
  return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Time on the run's clock [ns]. */
long long sockets_now(const tick_sockets *s) { return clock_of(CLOCK_MONOTONIC) - s->origin; }

static size_t pack_record(const tick_frame *f, unsigned char *record)
{
  unsigned word = f->id | (f->flags & EXTENDED ? LONG_ID : 0) | (f->flags & REMOTE ? ASKS : 0);
  size_t size = f->flags & FD ? FD_RECORD : CLASSIC_RECORD;
  memset(record, 0, size);
  memcpy(record, &word, sizeof word);
  record[4] = f->length;
  if (f->flags & FD) record[5] = f->flags & BRS ? 5 : 4; /* CANFD_FDF, CANFD_BRS */
  memcpy(record + 8, f->data, f->length);
  return size;
}

static int size_fits(int length)
{
  return length <= 8 || length == 12 || length == 16 || length == 20 || length == 24 || length == 32 ||
         length == 48 || length == 64;
}

/* Reads a record; 0 if it is no frame of this bus. */
static int unpack_record(const unsigned char *record, size_t size, int fd, tick_frame *f)
{
  unsigned word;
  int most = size == FD_RECORD ? 64 : 8;
  if (size != CLASSIC_RECORD && !(size == FD_RECORD && fd)) return 0;
  memcpy(&word, record, sizeof word);
  memset(f, 0, sizeof *f);
  f->length = record[4];
  if (f->length > most || !size_fits(f->length)) return 0;
  if (word & LONG_ID) f->flags |= EXTENDED;
  if (word & ASKS) f->flags |= REMOTE;
  if (word & REPORTS) f->flags |= ERROR_FRAME;
  if (size == FD_RECORD) f->flags |= FD | (record[5] & 1 ? BRS : 0);
  if (size == FD_RECORD && f->flags & REMOTE) return 0;
  f->id = word & (f->flags & (EXTENDED | ERROR_FRAME) ? 0x1FFFFFFFu : 0x7FFu);
  if (!(f->flags & REMOTE)) memcpy(f->data, record + 8, f->length);
  return 1;
}

/* Sends a record, when the queue of the controller has room for it. */
static ssize_t send_record(const tick_sockets *s, const tick_bus *bus, const unsigned char *record, size_t size)
{
  static const struct timespec again = {0, 50000};
  long long until = 0;
  for (;;) {
    ssize_t done = send(bus->socket, record, size, MSG_DONTWAIT);
    if (done >= 0) return done;
    if (errno == EINTR) continue;
    if ((errno != ENOBUFS && errno != EAGAIN) || bus->error) return done;
    if (!until) until = sockets_now(s) + PATIENCE;
    if (sockets_now(s) >= until) return done;
    nanosleep(&again, 0);
  }
}

/* Sends frames in their order; returns how many the buses refused. One call for all of them costs as much as one for
   each, and the time of each would be that of the last. */
int sockets_send(tick_sockets *s, const tick_frame *frames, int count)
{
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    tick_bus *bus = &s->bus[frames[i].bus];
    unsigned char record[FD_RECORD];
    size_t size = pack_record(&frames[i], record);
    if (send_record(s, bus, record, size) < 0) {
      bus->error = errno;
      ++bus->refused;
      ++refused;
      continue;
    }
    ++bus->sent;
    if (s->count < s->room) {
      tick_frame *kept = &s->frames[s->count++];
      *kept = frames[i];
      kept->flags |= SENT;
      kept->time = sockets_now(s);
    }
  }
  s->failed += refused;
  return refused;
}

/* System time at which the kernel received a message [ns]; -1: it does not say. */
static long long stamp_of(struct msghdr *message)
{
  const unsigned char *at = message->msg_control;
  size_t left = message->msg_controllen;
  struct cmsghdr head;
  while (left >= sizeof head) {
    memcpy(&head, at, sizeof head);
    if (head.cmsg_len < sizeof head || head.cmsg_len > left) break;
    if (head.cmsg_level == SOL_SOCKET && head.cmsg_type == SO_TIMESTAMPNS) {
      struct timespec t;
      memcpy(&t, at + sizeof head, sizeof t);
      return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    size_t length = (head.cmsg_len + sizeof(size_t) - 1) / sizeof(size_t) * sizeof(size_t);
    if (length >= left) break;
    at += length;
    left -= length;
  }
  return -1;
}

/* Takes the last of `frames`, or passes it on. */
static void take_frame(tick *k, tick_sockets *s)
{
  tick_frame *f = &s->frames[s->count++];
  int number = f->flags & ERROR_FRAME ? give_back(k, "an error frame")
                                      : tick_take(k, f->bus, f->id, f->flags, f->length, f->data, f->time);
  s->unknown += number == UNKNOWN;
  if (number == GIVEN_BACK) s->pass_on(s->count - 1);
}

/* Takes the frames that have arrived on a bus, as many as there is room for; returns whether it works. */
int sockets_take(tick *k, tick_sockets *s, int number)
{
  tick_bus *bus = &s->bus[number];
  unsigned char records[BATCH][FD_RECORD + 1]; /* one more byte shows a record that is too long */
  long long extra[BATCH][8]; /* a time stamp with its head */
  struct iovec parts[BATCH];
  struct mmsghdr messages[BATCH];
  int got;
  do {
    long long before = sockets_now(s), now, system;
    if (s->count + BATCH > s->room) return 1;
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < BATCH; ++i) {
      parts[i].iov_base = records[i];
      parts[i].iov_len = sizeof records[i];
      messages[i].msg_hdr.msg_iov = &parts[i];
      messages[i].msg_hdr.msg_iovlen = 1;
      messages[i].msg_hdr.msg_control = extra[i];
      messages[i].msg_hdr.msg_controllen = sizeof extra[i];
    }
    got = recvmmsg(bus->socket, messages, BATCH, MSG_DONTWAIT, 0);
    if (got < 0) {
      if (errno == EINTR) { got = BATCH; continue; }
      if (errno != EAGAIN) {
        bus->error = errno;
        ++s->failed;
        return 0;
      }
      bus->earliest = before;
      return 1;
    }
    now = sockets_now(s);
    system = clock_of(CLOCK_REALTIME);
    for (int i = 0; i < got; ++i) {
      tick_frame *f = &s->frames[s->count];
      long long stamp = stamp_of(&messages[i].msg_hdr), time = stamp < 0 ? now : now + stamp - system;
      if (time > now) time = now;
      else if (time < bus->earliest) time = bus->earliest;
      bus->earliest = time;
      if (!unpack_record(records[i], messages[i].msg_len, bus->fd, f)) {
        ++bus->invalid;
        continue;
      }
      f->time = time;
      f->bus = (unsigned char)number;
      if (!(f->flags & ERROR_FRAME)) ++bus->received;
      take_frame(k, s);
    }
  } while (got == BATCH);
  return 1;
}

/* Waits for a frame on any of some buses, until a moment at most; returns whether one may be there. */
static int wait_for_frame(tick_sockets *s, unsigned working, long long deadline)
{
  struct pollfd waiting[16];
  long long left = deadline - sockets_now(s);
  struct timespec most;
  int ready;
  for (int i = 0; i < s->buses; ++i) {
    waiting[i].fd = working >> i & 1 ? s->bus[i].socket : -1; /* a negative one is left out */
    waiting[i].events = POLLIN;
  }
  if (left < 0) left = 0;
  most.tv_sec = left / 1000000000;
  most.tv_nsec = left % 1000000000;
  ready = ppoll(waiting, (nfds_t)s->buses, &most, 0);
  return left > 0 && (ready > 0 || (ready < 0 && errno == EINTR)); /* a socket that hung up is ready for ever */
}

/* Sleeps through the time in which samples are still expected: every frame would wake the thread, for 20 us each.
   Returns when it woke [ns]. */
static long long sleep_for_samples(const tick *k, const tick_sockets *s, long long deadline)
{
  long long end = k->began + s->rest;
  struct timespec moment;
  if (s->rest <= 0 || tick_missing(k) < 0) return k->began;
  if (end > deadline) end = deadline;
  end += s->origin;
  moment.tv_sec = end / 1000000000;
  moment.tv_nsec = end % 1000000000;
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, 0);
  return sockets_now(s);
}

/* Learns how long to sleep, so that the thread wakes shortly after the last sample in two of three ticks. Steps of
   fixed size find that moment whatever single ticks do, and include the time that the system takes to wake a thread. */
static void learn_rest(const tick *k, tick_sockets *s, long long woke)
{
  long long latest = k->began;
  if (tick_missing(k) >= 0) {
    s->rest = 0;
    return;
  }
  for (int i = 0; i < k->channels; ++i)
    if (k->channel[i].awaited && k->sample_time[i] > latest) latest = k->sample_time[i];
  if (s->rest == 0) s->rest = (latest - woke) * 3 / 4;
  else s->rest += latest > woke ? 2000 : -1000;
  if (s->rest < 0) s->rest = 0;
}

/* Sends SYNC, and takes the frames that come until every sample is there, or until a moment. */
static void exchange(tick *k, tick_sockets *s, long long deadline)
{
  unsigned working = (1u << s->buses) - 1;
  long long woke;
  tick_frame sync;
  memset(&sync, 0, sizeof sync);
  sync.id = 0x80;
  for (int i = 0; i < s->buses; ++i) {
    sync.bus = (unsigned char)i;
    if (s->bus[i].synced) sockets_send(s, &sync, 1);
  }
  woke = sleep_for_samples(k, s, deadline);
  do {
    for (int i = 0; i < s->buses; ++i)
      if (working >> i & 1 && !sockets_take(k, s, i)) working &= ~(1u << i);
  } while (tick_missing(k) >= 0 && (sockets_now(s) - woke < SPIN || wait_for_frame(s, working, deadline)));
  learn_rest(k, s, woke);
}

/* Sends the torques that were encoded. */
static void send_commands(tick *k, tick_sockets *s)
{
  for (int i = 0; i < s->commands; ++i) {
    const unsigned char *whole = k->encoding[i].frame;
    s->command[i].id = (unsigned)whole[0] << 24 | (unsigned)whole[1] << 16 | (unsigned)whole[2] << 8 | whole[3];
    memcpy(s->command[i].data, whole + 4, s->command[i].length);
  }
  k->written = sockets_now(s); /* a reply to the first torque may come before the last one is sent */
  sockets_send(s, s->command, s->commands);
}

/* Ordinary ticks of the task, one after the other, until Python has something to do. */

enum { BETWEEN_TICKS, AFTER_READ }; /* where the ticks end */

static unsigned long long load(const unsigned long long *place)
{
  unsigned long long value;
  __atomic_load(place, &value, 2); /* acquire */
  return value;
}

static void store(unsigned long long *place, unsigned long long value) { __atomic_store(place, &value, 3); } /* release */

/* The next slot of a ring; 0, with the loss counted, if there is none. */
static unsigned char *slot_of(tick_ring *ring)
{
  unsigned long long head = ring->counts[RING_HEAD];
  if (head - load(&ring->counts[RING_TAIL]) < ring->capacity)
    return ring->slots + head % ring->capacity * ring->size;
  ++ring->counts[RING_LOST];
  return 0;
}

static void publish(tick_ring *ring) { store(&ring->counts[RING_HEAD], ring->counts[RING_HEAD] + 1); }

static void record_frames(tick_sockets *s)
{
  for (int i = 0; i < s->count; ++i) {
    unsigned char *slot = slot_of(&s->frame_ring);
    if (!slot) continue;
    memcpy(slot, &s->frames[i], sizeof *s->frames);
    publish(&s->frame_ring);
  }
}

static void record_row(const tick *k, tick_sockets *s, tick_log *g)
{
  unsigned char *slot = slot_of(&s->row_ring);
  double *row = slot ? (double *)(void *)slot : g->unused;
  log_tick(k, g, &s->last, row);
  memcpy(row + g->columns - s->lives, s->live, s->lives * sizeof *row);
  if (slot) publish(&s->row_ring);
}

static int equal_feeds(const tick_feed *a, const tick_feed *b)
{
  const tick_frame *f = &a->frame, *h = &b->frame;
  return f->bus == h->bus && f->id == h->id && f->flags == h->flags && f->length == h->length &&
         !memcmp(f->data, h->data, f->length);
}

/* Feeds watchdogs, each distinct frame once per bus, and counts the tick. */
static void feed_watchdogs(tick_sockets *s)
{
  for (int i = 0; i < s->feeds; ++i) {
    tick_feed *feed = &s->feed[i];
    int due = feed->ticks % feed->every == 0;
    for (int j = 0; j < i && due; ++j)
      if ((s->feed[j].ticks - 1) % s->feed[j].every == 0 && equal_feeds(&s->feed[j], feed)) due = 0;
    if (due) sockets_send(s, &feed->frame, 1);
    ++feed->ticks;
  }
  ++s->fed;
}

/* Sleeps until a tick is due; returns whether a signal has come. */
static int sleep_until_due(const tick_sockets *s)
{
  char bytes[16];
  long long moment = s->deadline + s->origin;
  struct timespec end;
  end.tv_sec = moment / 1000000000;
  end.tv_nsec = moment % 1000000000;
  if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, 0)) return 1;
  return s->wake >= 0 && read(s->wake, bytes, sizeof bytes) > 0;
}

/* Whether Python must look at the tick that was just done. */
static int noteworthy(const tick *k, const tick_sockets *s)
{
  const double *row = k->law.results[0];
  if (s->failed || *k->failed) return 1;
  if (k->source->kind != STOP && s->ends >> (int)row[k->status_start] & 1) return 1;
  if (k->source->kind != STOP && limits_bind(k->source)) return 1; /* a stop may use all of a limit */
  return 0;
}

/* The read of a tick that has begun: exchanges frames until a moment, records them, and computes the state. */
void stretch_read(tick *k, tick_sockets *s, long long deadline)
{
  s->count = s->failed = 0;
  k->trouble = 0;
  exchange(k, s, deadline);
  tick_sense(k, sockets_now(s));
  record_frames(s);
  s->count = 0;
}

/* Sends the torques that Python has decided. */
int stretch_act(tick *k, tick_sockets *s)
{
  s->count = s->failed = 0;
  if (tick_act(k)) return GIVEN_BACK;
  send_commands(k, s);
  feed_watchdogs(s);
  record_frames(s);
  return 0;
}

/* Does ticks, at most so many; returns where they end. A tick that was begun is Python's from there on. */
int stretch_run(tick *k, tick_sockets *s, tick_log *g, int most)
{
  double elapsed = seconds(s->period);
  tick_times *now = &s->last;
  s->ticks = now->skipped = 0;
  now->counts = 1;
  while (s->ticks < most && (k->source->kind == STOP || seconds(s->task_time) < s->duration) && !sleep_until_due(s)) {
    now->deadline = k->due = s->deadline;
    now->elapsed = s->period;
    now->task_time = seconds(s->task_time);
    now->began = k->began = sockets_now(s);
    stretch_read(k, s, now->began + s->wait);
    now->read = sockets_now(s);
    if (!k->healthy || s->failed || tick_asks(k) || tick_decide(k, now->read, elapsed, now->task_time)) return AFTER_READ;
    send_commands(k, s);
    now->decided = sockets_now(s);
    feed_watchdogs(s);
    now->written = sockets_now(s);
    record_frames(s);
    record_row(k, s, g);
    ++s->ticks;
    if (k->source->kind == LAW) s->task_time += s->period;
    s->deadline += s->period;
    if (noteworthy(k, s) || sockets_now(s) - s->deadline >= s->period) break;
  }
  return BETWEEN_TICKS;
}
