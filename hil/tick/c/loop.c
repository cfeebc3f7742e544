/* Bring-up, cyclic tick and stop. Every way out of main switches every drive off; what ends this process without a way
   out (SIGKILL, loss of power) leaves it to the watchdogs of the drives. */

enum { EXIT_USAGE = 2, EXIT_RIG = 3, EXIT_SIGNAL = 130 };

static const long long ANSWER = 3000000000LL, BRAKE = 100000000, OFF = 500000000; /* [ns] */

static tick *const K = &machine;
static tick_sockets *const S = &wires;
static volatile sig_atomic_t signalled;
static int enabled, begun; /* drives whose bring-up is complete, and nodes whose bring-up has begun */
static int enabling = -1, stopping; /* the drive that is being enabled; whether all are being switched off */
static int expected_from[64], expected_to[64];
static int confirmed[64], proofs[64]; /* whether a drive is off, and how many frames in a row have proved it */
static unsigned char amiss[sizeof message_table / sizeof message_table[0]]; /* the last frame was not as expected */
static unsigned char answered[sizeof steps / sizeof steps[0]];
static long long alive_ticks, served;
static tick_frame latest; /* the last frame with an id that is awaited */
static FILE *record_file;

static const char *const ENDS = "the task ends";

static void on_signal(int number) { signalled = number; }

static void say(const char *name, const char *what) { fprintf(stderr, "%s%s%s\n", name, *name ? ": " : "", what); }

/* Opens an interface of SocketCAN, or takes an open socket with its records: fd:NUMBER. */
static int open_bus(const char *name, int fd)
{
  int on = 1, opened, size = 4 << 20;
  struct sockaddr_can address;
  struct ifreq interface;
  can_err_mask_t errors = CAN_ERR_MASK;
  if (strncmp(name, "fd:", 3) == 0) opened = atoi(name + 3);
  else {
    if ((opened = socket(PF_CAN, SOCK_RAW, CAN_RAW)) < 0) return -1;
    memset(&interface, 0, sizeof interface);
    strncpy(interface.ifr_name, name, sizeof interface.ifr_name - 1);
    if (ioctl(opened, SIOCGIFINDEX, &interface) < 0) return -1;
    memset(&address, 0, sizeof address);
    address.can_family = AF_CAN;
    address.can_ifindex = interface.ifr_ifindex;
    if (fd && setsockopt(opened, SOL_CAN_RAW, CAN_RAW_FD_FRAMES, &on, sizeof on) < 0) return -1;
    if (setsockopt(opened, SOL_CAN_RAW, CAN_RAW_ERR_FILTER, &errors, sizeof errors) < 0) return -1;
    if (bind(opened, (struct sockaddr *)&address, sizeof address) < 0) return -1;
  }
  setsockopt(opened, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  return setsockopt(opened, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) < 0 ? -1 : opened;
}

static int matches(const loop_step *step, const tick_frame *f)
{
  if (f->bus != step->frame.bus || f->id != step->frame.id || f->length != step->frame.length) return 0;
  if ((f->flags ^ step->frame.flags) & ~(SENT | BRS)) return 0;
  for (int i = 0; i < f->length; ++i)
    if ((f->data[i] ^ step->frame.data[i]) & step->mask[i]) return 0;
  return 1;
}

/* Whether a frame proves that its drive is off, or that it may be on. */
static void judge(const tick_frame *f)
{
  unsigned char whole[4 + 64];
  int node = -1, answers = 0;
  for (int i = 0; i < 4; ++i) whole[i] = (unsigned char)(f->id >> 8 * (3 - i));
  memcpy(whole + 4, f->data, sizeof f->data);
  for (int i = 0; i < (int)(sizeof offs / sizeof offs[0]); ++i) {
    const loop_off *each = &offs[i];
    if ((f->id & each->mask) != each->id || f->bus != each->bus || f->length != each->length) continue;
    if (!(f->flags & EXTENDED) != (each->id <= 0x7FF)) continue;
    if (!as_expected(each->selects, each->selects_count, whole + 4)) continue;
    node = each->node;
    if (as_expected(each->bits, each->bits_count, whole + 4)) answers = each->answers;
  }
  if (node < 0) return;
  proofs[node] = answers ? proofs[node] + 1 : 0;
  confirmed[node] = answers && proofs[node] >= answers;
}

/* Looks at a frame outside the cyclic tick: samples, answers that are awaited, and whether a drive is off. */
static void look_at(const tick_frame *f, int node)
{
  if (f->flags & (REMOTE | ERROR_FRAME)) return;
  tick_take(K, f->bus, f->id, f->flags >> 1 & 15, f->length, f->data, f->time);
  if (node >= 0)
    for (int i = expected_from[node]; i < expected_to[node]; ++i) {
      if (steps[i].frame.id == f->id) latest = *f;
      if (!answered[i] && matches(&steps[i], f)) {
        answered[i] = 1;
        break;
      }
    }
  for (int i = 0; i < K->messages; ++i) {
    const tick_message *each = &K->message[i];
    if (each->id != f->id || each->bus != f->bus || each->length != f->length || !each->expects_count) continue;
    if (as_expected(each->selects, each->selects_count, f->data))
      amiss[i] = !as_expected(each->expects, each->expects_count, f->data);
  }
  judge(f);
}

/* Sends SYNC, what keeps the drives alive, and the torques: those that hold the enabled ones, none to the others. */
static void serve(void)
{
  tick_frame sync;
  memset(&sync, 0, sizeof sync);
  sync.id = 0x80;
  S->count = 0;
  for (int i = 0; i < S->buses; ++i) {
    sync.bus = (unsigned char)i;
    if (S->bus[i].synced) sockets_send(S, &sync, 1);
  }
  for (int i = 0; i < (int)(sizeof alive / sizeof alive[0]); ++i)
    if (alive[i].every && alive_ticks % alive[i].every == 0) sockets_send(S, &alive[i].frame, 1);
  ++alive_ticks;
  for (int i = 0; i < K->m && !stopping; ++i)
    if (i < enabled || (i == enabling && nodes[i].rests)) sockets_send(S, &holding[i], 1);
    else if (nodes[i].rests) sockets_send(S, &resting[i], 1);
}

/* Receives until a moment, and serves once per period. */
static void listen_until(long long moment, int node)
{
  while (sockets_now(S) < moment) {
    long long now = sockets_now(S);
    if (now - served >= PERIOD) {
      served = now;
      serve();
    }
    S->count = 0;
    for (int i = 0; i < S->buses; ++i) {
      sockets_take(K, S, i);
      for (int j = 0; j < S->count; ++j) look_at(&S->frames[j], node);
      S->count = 0;
    }
    wait_for_frame(S, moment < served + PERIOD ? moment : served + PERIOD);
    if (signalled) return;
  }
}

static void say_frame(const tick_frame *f)
{
  if (f->id) fprintf(stderr, " %03X#", f->id);
  else fprintf(stderr, " nothing");
  for (int i = 0; i < f->length; ++i) fprintf(stderr, "%02X", f->data[i]);
}

/* Sends frames up to the next answer; a full bus gets them a little later. */
static int send_steps(int node, int *next, long long end)
{
  int last = nodes[node].first_step + nodes[node].steps, to = *next;
  while (to < last && !steps[to].awaits) ++to;
  for (expected_from[node] = expected_to[node] = to; expected_to[node] < last && steps[expected_to[node]].awaits;)
    ++expected_to[node]; /* an answer may come at once */
  while (*next < to) {
    if (*next == nodes[node].first_enable) enabling = node;
    S->count = 0;
    if (!sockets_send(S, &steps[*next].frame, 1)) ++*next;
    else if (sockets_now(S) > end) return say(nodes[node].name, "the bus refuses a frame"), 0;
    else listen_until(sockets_now(S) + PERIOD / 4, node);
    if (signalled) return 0;
  }
  return 1;
}

/* Frames to send, then the answers, in any order among themselves. */
static int bring_up(int node)
{
  const loop_node *n = &nodes[node];
  int last = n->first_step + n->steps;
  memset(&latest, 0, sizeof latest);
  for (int i = n->first_step; i < last;) {
    long long end = sockets_now(S) + ANSWER;
    int missing = 1;
    expected_from[node] = i;
    while (i < last && steps[i].awaits) ++i;
    expected_to[node] = i;
    while (missing && !signalled && sockets_now(S) < end) {
      missing = 0;
      for (int j = expected_from[node]; j < i; ++j) missing += !answered[j];
      if (missing) listen_until(sockets_now(S) + PERIOD / 4, node);
    }
    if (signalled) return 0;
    if (missing) {
      for (int j = expected_from[node]; j < i; ++j)
        if (!answered[j]) {
          fprintf(stderr, "%s: does not answer as at the export: awaited within 3 s", n->name);
          say_frame(&steps[j].frame);
          fprintf(stderr, ", came");
          say_frame(&latest);
          fprintf(stderr, "\n");
        }
      return 0;
    }
    if (!send_steps(node, &i, end)) return 0;
  }
  return 1;
}

/* The state from which the first tick goes on: the start pose at rest, and one fresh sample of every node. */
static int begin_task(void)
{
  long long now = sockets_now(S);
  for (int i = 0; i < K->messages; ++i)
    if (amiss[i] && K->message[i].node < K->m) return say(nodes[K->message[i].node].name, "is no longer enabled"), 0;
  for (int i = 0; i < K->channels; ++i) {
    if (!K->sample_time[i] || now - K->sample_time[i] > K->missed) return say(nodes[i].name, "has sent no new sample"), 0;
    if (!(fabs(K->position[i] - nodes[i].start) <= START_TOLERANCE)) {
      fprintf(stderr, "%s: at the start pose %.6g is expected, measured is %.6g (start_tolerance %g)\n", nodes[i].name,
              nodes[i].start, K->position[i], START_TOLERANCE);
      return 0;
    }
    K->accepted_position[i] = K->position[i];
    K->accepted_velocity[i] = K->rates[i] = K->before[i] = K->velocity[i];
    K->accepted_torque[i] = K->torque[i];
    K->accepted_time[i] = K->seen[i] = K->still_since[i] = K->sample_time[i];
    K->travel[i] = 0.0;
  }
  for (int i = 0; i < K->m; ++i) K->previous[i] = K->carried[i] = nodes[i].hold;
  if (K->estimates) memcpy(K->controller_memory + K->memory - 1 - K->m, K->previous, (size_t)K->m * sizeof(double));
  memcpy(K->q, start_q, sizeof start_q);
  memset(K->v, 0, sizeof start_q);
  *K->sync = *K->sync_before = -1;
  *K->half_elapsed = -1.0;
  *K->now = *K->limits_time = now;
  return 1;
}

static void record(const void *what, size_t size)
{
  if (record_file) fwrite(what, 1, size, record_file);
}

static void record_tick(double elapsed, double task_time)
{
  double numbers[2];
  numbers[0] = elapsed;
  numbers[1] = task_time;
  record(numbers, sizeof numbers);
}

static void record_frames(void)
{
  long long count = S->count;
  record(&count, sizeof count);
  record(S->frames, (size_t)S->count * sizeof *S->frames);
}

/* The task, until it is over or anything is not ordinary; returns the exit code. */
static int run_task(double duration)
{
  long long deadline = sockets_now(S), task = 0, skipped = 0;
  int late = 0;
  record(K->numbers, (size_t)K->doubles * sizeof *K->numbers);
  record(K->times, (size_t)K->integers * sizeof *K->times);
  while (!signalled) {
    long long moment = deadline + S->origin, began, periods = 1 + (skipped < 2 ? skipped : 2);
    double task_time = (double)task / 1e9, elapsed = (double)(periods * PERIOD) / 1e9;
    struct timespec at;
    at.tv_sec = moment / 1000000000;
    at.tv_nsec = moment % 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0) == EINTR && !signalled) {}
    if (signalled) break;
    if (task_time >= duration) return 0;
    began = sockets_now(S);
    if (sockets_read(K, S, began, began + WAIT)) return say(ENDS, K->trouble), EXIT_RIG;
    record_tick(elapsed, task_time);
    record_frames();
    if (sockets_write(K, S, elapsed, task_time)) return say(ENDS, K->trouble), EXIT_RIG;
    if (S->failed) return say(ENDS, "a bus refuses frames"), EXIT_RIG;
    record(K->now, sizeof *K->now);
    record(K->limits_time, sizeof *K->limits_time);
    record(K->began, sizeof *K->began);
    record_frames();
    for (int i = 0; i < (int)(sizeof alive / sizeof alive[0]); ++i)
      if (alive[i].every && alive_ticks % alive[i].every == 0) sockets_send(S, &alive[i].frame, 1);
    ++alive_ticks;
    task += periods * PERIOD;
    deadline += PERIOD;
    skipped = (sockets_now(S) - deadline) / PERIOD;
    if (skipped < 0 || sockets_now(S) < deadline) skipped = 0;
    deadline += skipped * PERIOD;
    late = skipped ? late + 1 : 0;
    if (late > LATE_TICKS) return say(ENDS, "too many periods without a tick"), EXIT_RIG;
  }
  return EXIT_SIGNAL;
}

/* Switches every drive off; returns how many have not confirmed it. */
static int stop_drives(void)
{
  long long began = sockets_now(S);
  int missing;
  signalled = 0; /* a second signal does not keep drives on */
  enabled = 0;
  stopping = 1;
  do {
    int braking = sockets_now(S) - began < BRAKE;
    if (braking) { /* what counts comes after the command to switch off */
      memset(confirmed, 0, sizeof confirmed);
      memset(proofs, 0, sizeof proofs);
    }
    S->count = 0;
    for (int i = 0; i < K->m; ++i) {
      int first = braking ? nodes[i].first_brake : nodes[i].first_off;
      sockets_send(S, &stops[first], braking ? nodes[i].brakes : nodes[i].offs);
    }
    listen_until(sockets_now(S) + PERIOD, -1);
    signalled = 0;
    missing = 0;
    for (int i = 0; i < K->m && i < begun; ++i) missing += !confirmed[i];
  } while (sockets_now(S) - began < BRAKE + 3 * PERIOD || (missing && sockets_now(S) - began < OFF));
  for (int i = 0; i < K->m && i < begun; ++i)
    if (!confirmed[i]) say(nodes[i].name, "THE DRIVE DID NOT CONFIRM THAT IT IS OFF: use the emergency stop");
  return missing;
}

static void catch_signals(void)
{
  static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  for (int i = 0; i < (int)(sizeof caught / sizeof caught[0]); ++i) sigaction(caught[i], &action, 0);
  signal(SIGPIPE, SIG_IGN);
}

static void ask_for_real_time(void)
{
  struct sched_param first;
  memset(&first, 0, sizeof first);
  first.sched_priority = 80;
  if (sched_setscheduler(0, SCHED_FIFO, &first)) say("", "note: no real-time priority (run as root)");
  if (mlockall(MCL_CURRENT | MCL_FUTURE)) say("", "note: memory may be paged out (run as root)");
}

static int usage(void)
{
  fprintf(stderr,
          "usage: %s --armed [--duration SECONDS] [--record FILE] BUS...\n"
          "One BUS for each of: %s (an interface such as can0, or fd:NUMBER for an open socket).\n"
          "Drives make torque: start it when nobody is in reach and the emergency stop is at hand.\n",
          NAME, BUSES);
  return EXIT_USAGE;
}

static int work(double duration)
{
  for (int i = 0; i < NODES; ++i) {
    begun = i + 1;
    if (!bring_up(i)) return signalled ? EXIT_SIGNAL : EXIT_RIG;
    if (i < K->m) enabled = i + 1;
  }
  listen_until(sockets_now(S) + 3 * PERIOD, -1);
  if (signalled) return EXIT_SIGNAL;
  if (!begin_task()) return EXIT_RIG;
  say("", "the task begins");
  return run_task(duration);
}

int main(int count, char **words)
{
  double duration = DURATION;
  int armed = 0, buses = 0, code;
  set_up();
  for (int i = 1; i < count; ++i) {
    if (strcmp(words[i], "--armed") == 0) armed = 1;
    else if (strcmp(words[i], "--duration") == 0 && i + 1 < count) duration = atof(words[++i]);
    else if (strcmp(words[i], "--record") == 0 && i + 1 < count) {
      if (!(record_file = fopen(words[++i], "wb"))) return perror(words[i]), EXIT_USAGE;
    } else if (buses < S->buses && words[i][0] != '-') {
      S->bus[buses].socket = open_bus(words[i], S->bus[buses].fd);
      if (S->bus[buses++].socket < 0) return perror(words[i]), EXIT_RIG;
    } else return usage();
  }
  if (!armed || buses != S->buses || !(duration > 0.0)) return usage();
  catch_signals();
  ask_for_real_time();
  S->origin = sockets_now(S);
  code = work(duration);
  if (stop_drives()) code = EXIT_RIG;
  else say("", "every drive is off");
  if (record_file) fclose(record_file);
  return code;
}
