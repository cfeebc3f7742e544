/* The buses of the tick in C as sockets with records of SocketCAN. Python reads this file as it stands. */

typedef struct {
  int socket, fd, synced;                    /* fd: it carries FD frames; synced: SYNC starts its samples */
  int error;                                 /* errno of the last failure; 0: none; then a full queue is not waited for */
  long long earliest;                        /* the next frame comes after this moment [ns] */
  long long sent, received, refused, invalid; /* since Python took note of them */
} tick_bus;

typedef struct { /* a ring of hil.recorder.memory, to put records into */
  unsigned long long *counts; /* number of records put, then of those lost; after eight numbers, of those taken */
  unsigned char *slots;
  unsigned long long size, capacity;
} tick_ring;

typedef struct { /* a frame that feeds the watchdog of a drive */
  tick_frame frame;
  long long every, ticks; /* it is sent every so many ticks; ticks up to now */
} tick_feed;

typedef struct { /* hil.rig.sockets.TicksOnSockets */
  int buses, room, count, commands, failed;
  long long unknown; /* frames with an id of no node since Python took note of them */
  long long rest;   /* after the beginning of a tick no sample is expected for so long [ns] */
  long long origin; /* CLOCK_MONOTONIC at time 0 of the run [ns] */
  tick_bus *bus;
  tick_frame *frames;  /* of this tick, sent and received, in order */
  tick_frame *command; /* a frame of each drive, without its torque */
  void (*pass_on)(int index); /* gives one of `frames` to Python, whose drivers take it before the next one is read */
  /* several ticks in one call */
  tick_ring row_ring, frame_ring;
  int feeds;
  tick_feed *feed;
  const double *live; /* values of gains that may change, at the end of a row */
  int lives, wake;    /* wake: descriptor with a byte after each signal; -1: none */
  double duration;               /* of the task [s] */
  unsigned long long ends;       /* bit: status of the law after which Python looks at the tick */
  long long period, wait;        /* of the ticks; longest time after the beginning of one to wait for samples [ns] */
  long long deadline, task_time; /* of the next tick [ns] */
  long long fed;                 /* ticks in which watchdogs were fed since Python gave the state */
  int ticks;                     /* done */
  tick_times last;               /* of the last tick, or of the one that was begun */
} tick_sockets;

long long sockets_now(const tick_sockets *s);
int sockets_take(tick *k, tick_sockets *s, int number);
int sockets_send(tick_sockets *s, const tick_frame *frames, int count);
void stretch_read(tick *k, tick_sockets *s, long long deadline);
int stretch_act(tick *k, tick_sockets *s);
int stretch_run(tick *k, tick_sockets *s, tick_log *g, int most);
