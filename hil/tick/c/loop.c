/* Bring-up, cyclic tick and stop. Every way out of main switches every drive off; what ends this process without a way
   out (SIGKILL, loss of power) leaves it to the watchdogs of the drives. Its stop has fewer steps than that of servoctl
   hil: no controlled stop. Drives that can brake by themselves do so for RAMP, the others coast; then all go off. Brakes
   close as a drive does it by itself. */

enum { EXIT_USAGE = 2, EXIT_RIG = 3, EXIT_SIGNAL = 130 };

static const long long OFF = 500000000; /* [ns] */

static FILE *record_file;

static const char *const ENDS = "the task ends";

static void on_signal(int number) { signalled = number; }

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

/* The state from which the first tick goes on: the start pose at rest, and one fresh sample of every node. */
static int begin_task(void)
{
  long long now = sockets_now(S);
  for (int i = 0; i < K->messages; ++i)
    if (amiss[i] && K->message[i].node < K->m) {
      fprintf(stderr, "%s: is no longer enabled; its last frame:", nodes[K->message[i].node].name);
      end_with_frame(&S->last[i]);
      return 0;
    }
  for (int i = 0; i < K->channels; ++i) {
    if (!K->sample_time[i] || now - K->sample_time[i] > STALE) return say(nodes[i].name, "has sent no new sample"), 0;
    if (!(fabs(K->position[i] - nodes[i].start) <= nodes[i].tolerance)) {
      fprintf(stderr, "%s: at the start pose %.6g is expected, measured is %.6g (start_tolerance %g)\n", nodes[i].name,
              nodes[i].start, K->position[i], nodes[i].tolerance);
      return 0;
    }
    K->accepted_position[i] = K->position[i];
    K->accepted_velocity[i] = K->rates[i] = K->before[i] = K->velocity[i];
    K->accepted_torque[i] = K->torque[i];
    K->accepted_time[i] = K->seen[i] = K->still_since[i] = K->sample_time[i];
    K->travel[i] = 0.0;
    begin_scale(K, i, K->sample_time[i]);
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

/* Says why a tick is not an ordinary one: the frame that shows it, and the nodes whose samples are old. */
static int end_task(void)
{
  long long now = sockets_now(S);
  say(ENDS, K->trouble);
  for (int i = 0; i < S->count; ++i)
    if (S->number[i] == GIVEN_BACK && !(S->frames[i].flags & SENT)) {
      fprintf(stderr, "the frame:");
      end_with_frame(&S->frames[i]);
      break;
    }
  for (int i = 0; i < K->channels; ++i)
    if (now - K->sample_time[i] > STALE)
      fprintf(stderr, "%s: last sample %.1f ms ago, at most %.1f ms are allowed\n", nodes[i].name,
              (double)(now - K->sample_time[i]) / 1e6, (double)STALE / 1e6);
  return EXIT_RIG;
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
    *K->due = deadline;
    if (sockets_read(K, S, began, began + WAIT)) return end_task();
    record_tick(elapsed, task_time);
    record_frames();
    if (sockets_write(K, S, elapsed, task_time)) return end_task();
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
    int braking = sockets_now(S) - began < RAMP;
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
  } while (sockets_now(S) - began < RAMP + 3 * PERIOD || (missing && sockets_now(S) - began < RAMP + OFF));
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

/* A full queue or a bus that is down loses frames, those that feed watchdogs too. */
static void say_refused(void)
{
  for (int i = 0; i < S->buses; ++i)
    if (S->bus[i].refused)
      fprintf(stderr, "bus %d: %lld frames were refused: %s\n", i + 1, (long long)S->bus[i].refused,
              strerror(S->bus[i].error));
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
  say_refused();
  if (stop_drives()) code = EXIT_RIG;
  else say("", "every drive is off");
  if (record_file) fclose(record_file);
  return code;
}
