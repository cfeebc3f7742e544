
typedef struct { /* what a tick records: hil.session.logbook */
  int columns, sources, state, command, inputs, parameters, block, gauges;
  const int *source; /* of the first columns: index into `numbers` */
  const int *gauge;  /* of the columns of gauges: index into those of `tick` */
  double *numbers;   /* time, state, command, and the results of `values` */
  double *unused;    /* a row that finds no room */
  tick_call values;
  int stage, task;               /* number of the stage, and that of the task */
  int disturbance, disturbances; /* where the law's observer is in the command; outside the task it stands still */
  unsigned long long *lateness, *period, *execution, *read, *law, *write, *ages; /* in blocks of hil.loop.timing */
  long long *marks; /* of hil.loop.timing: beginning of the last tick, least slack, late ticks in a row */
  long long nominal;
} tick_log;

typedef struct { /* when the parts of a tick ended, on the run's clock [ns] */
  long long deadline, began, elapsed, read, decided, written;
  double task_time; /* [s] */
} tick_times;

void log_count(unsigned long long *counts, long long duration);
void log_tick(const tick *k, tick_log *g, const tick_times *when, double *row);
