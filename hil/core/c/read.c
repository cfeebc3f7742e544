/* The reading of a tick: the state of the machine from the frames. */

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
  k->mute = 0;
  for (int i = 0; i < k->m; ++i) k->silences[i] = k->alive[i] ? seconds(now - k->alive[i]) : 0.0;
  for (int i = 0; i < k->channels; ++i) k->mute = k->mute || (k->channel[i].mutes && k->sample_time[i] < *k->written);
  sense_read(k->sensing, seconds(now), now, *k->due, k->free, *k->began, *k->written);
  return tick_asks(k);
}
