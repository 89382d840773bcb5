#include "vendor_queue.h"

/* The engine is as late as it may be: nothing is computed before it is waited for, or asked for the third time. */
enum { PLACES = 8, PATIENCE = 3 };

static struct {
  int is_conv, asked;
  int8_t *out;
  const int8_t *one, *other;
  vendor_conv_t conv;
  const int32_t *table;
  int32_t *sums, count;
} queue[PLACES];

static uint32_t started, ended;
static int32_t failed;

static void run_to(uint32_t token)
{
  while (ended < token) {
    int at = (int)(++ended % PLACES);
    int32_t status = queue[at].is_conv
                         ? vendor_conv(queue[at].out, queue[at].one, &queue[at].conv, queue[at].other,
                                       queue[at].table, queue[at].sums)
                         : vendor_add(queue[at].count, queue[at].one, queue[at].other, queue[at].out, queue[at].table);
    failed = failed != 0 ? failed : status;
  }
}

static int place(uint32_t *token)
{
  *token = ++started;
  if (started > PLACES) {
    run_to(started - PLACES);
  }
  queue[started % PLACES].asked = 0;
  return (int)(started % PLACES);
}

int32_t vendor_conv_start(int8_t *out, const int8_t *in, const vendor_conv_t *conv, const int8_t *weights,
                          const int32_t *table, int32_t *sums, uint32_t *token)
{
  if (conv->channels > 8192) {
    return 9;
  }
  int at = place(token);
  queue[at].is_conv = 1;
  queue[at].out = out;
  queue[at].one = in;
  queue[at].conv = *conv;
  queue[at].other = weights;
  queue[at].table = table;
  queue[at].sums = sums;
  return 0;
}

int32_t vendor_add_start(int32_t count, const int8_t *one, const int8_t *other, int8_t *out, const int32_t *table,
                         uint32_t *token)
{
  int at = place(token);
  queue[at].is_conv = 0;
  queue[at].count = count;
  queue[at].one = one;
  queue[at].other = other;
  queue[at].out = out;
  queue[at].table = table;
  return 0;
}

int32_t vendor_queue_wait(uint32_t token)
{
  run_to(token);
  int32_t status = failed;
  failed = 0;
  return status;
}

int32_t vendor_queue_done(uint32_t token, uint8_t *done)
{
  *done = token <= ended || ++queue[token % PLACES].asked == PATIENCE;
  return *done ? vendor_queue_wait(token) : 0;
}
