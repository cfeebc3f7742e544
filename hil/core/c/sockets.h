/* The buses of the tick in C as sockets with records of SocketCAN. Python reads this file as it stands. */

typedef struct {
  int socket, fd, synced;                    /* fd: it carries FD frames; synced: SYNC starts its samples */
  int error;                                 /* errno of the last failure; 0: none; then a full queue is not waited for */
  long long earliest;                        /* the next frame comes after this moment [ns] */
  long long sent, received, refused, invalid; /* since Python took note of them */
} tick_bus;

typedef struct {
  int buses, room, count, commands, failed, unknown;
  long long rest;   /* after the beginning of a tick no sample is expected for so long [ns] */
  long long origin; /* CLOCK_MONOTONIC at time 0 of the run [ns] */
  tick_bus *bus;
  tick_frame *frames;     /* of this tick, sent and received, in order */
  int *number;            /* of the message of each; -1: none */
  tick_frame *command;    /* a frame of each drive, without its torque */
  tick_frame *last;       /* the last frame of each message since Python gave the state */
  long long *order, turn; /* in which order they came; 0: none came */
} tick_sockets;

long long sockets_now(const tick_sockets *s);
int sockets_take(tick *k, tick_sockets *s, int number);
int sockets_send(tick_sockets *s, const tick_frame *frames, int count);
