/* A loop without Python: tick.c and sockets.c, bring-up and stop as frames, and a main. */

typedef struct { /* of the bring-up of a node: a frame to send, or one to wait for, of which the masked bits must agree */
  int awaits, answer; /* the number in it that must lie in a range; -1: none */
  tick_frame frame;
  unsigned char mask[64];
} loop_step;

typedef struct { /* a number in an answer: in a field, or as text that comes in parts up to the end of a line */
  const char *name, *expected;
  int text, unlimited; /* unlimited: NaN is in the range, too */
  double least, most;
  tick_field field;
  tick_frame poll; /* asks for more text */
} loop_answer;

typedef struct { /* a frame that is sent every so many ticks */
  int every;
  tick_frame frame;
} loop_alive;

typedef struct { /* a frame that proves that a drive makes no torque: hil.drives.wire.Off */
  int node, bus, length, answers;
  unsigned id, mask;
  int selects_count, bits_count;
  tick_expects selects[1], bits[1];
} loop_off;

typedef struct {
  const char *name;
  int first_step, steps;         /* bring-up */
  int first_enable, rests;       /* the step that begins to enable it; whether it is fed by torques before */
  int first_brake, brakes;       /* frames that make a drive brake */
  int first_off, offs;           /* frames that switch it off */
  double start, hold, tolerance; /* position at the start pose; torque that holds it, 0 for an encoder node; largest
                                    difference from the start pose */
} loop_node;
