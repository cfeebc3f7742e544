/* The reading of a tick: the state of the machine from the frames, and the one for the law. */

/* Number of a bus on which a sample of this tick is missing; -1: none is. */
int tick_missing(const tick *k)
{
  for (int i = 0; i < k->channels; ++i) {
    const tick_channel *each = &k->channel[i];
    if (each->awaited && k->sample_time[i] < (each->synced ? *k->began : *k->written)) return each->bus;
  }
  return -1;
}

/* Whether Python reacts to the reading: to a verdict, a state that is not known, a drive that mutes its bus, or an
   exception. */
int tick_asks(const tick *k) { return k->sensing->verdicts || !k->sensing->valid || k->mute || *k->failed; }

/* Computes the state of the machine; returns whether Python reacts to it. */
int tick_sense(tick *k, long long now)
{
  sensing *s = k->sensing;
  int n = k->n;
  double t = seconds(now), late = seconds(now - *k->due);
  k->mute = 0;
  for (int i = 0; i < k->m; ++i) k->silences[i] = k->alive[i] ? seconds(now - k->alive[i]) : 0.0;
  for (int i = 0; i < k->channels; ++i) k->mute = k->mute || (k->channel[i].mutes && k->sample_time[i] < *k->written);
  sense_read(s, t, now, k->free, *k->began, *k->written);
  memcpy(k->law_q, s->estimate_q, n * sizeof *k->law_q);
  memcpy(k->law_v, s->estimate_v, n * sizeof *k->law_v);
  if (k->predicts && k->free && s->valid) {
    const double *ahead = predict(s, t, k->period, s->estimate_q, s->estimate_v, k->carried);
    memcpy(k->law_q, ahead, n * sizeof *ahead);
    memcpy(k->law_v, ahead + n, n * sizeof *ahead);
  } else if (k->estimates) /* an estimator needs the positions at the moment when the tick was due */
    for (int i = 0; i < n; ++i) k->law_q[i] -= late * k->law_v[i];
  return tick_asks(k);
}
