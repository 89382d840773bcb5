/* The hardware abstraction layer of HWlib: the eight functions that the silicon implements.
 *
 * The accelerator has two local memories (activations, weights), a DMA engine that copies between
 * them and main memory (or flash), and an array that runs jobs on tiles in local memory. The engines
 * run beside the host and beside each other; each takes its work in the order in which it was
 * started. A token stands for one started copy or job until it was waited for; it is never 0, which
 * HWlib keeps in a slot that no copy or job was started for.
 */
#ifndef HWLIB_HAL_H
#define HWLIB_HAL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What every function of HWlib and of the HAL returns. A HAL may return any of them, at once or
 * from the wait; HWlib hands it up unchanged. Values fit in 8 bits. */
typedef int32_t hwlib_status_t;
enum {
  HWLIB_OK = 0,
  HWLIB_ERROR_ADDRESS = 1,   /* an access outside the memory that it names */
  HWLIB_ERROR_ALIGNMENT = 2, /* an address, stride or length that the engine cannot take */
  HWLIB_ERROR_LIMIT = 3,     /* a job beyond what the array can do */
  HWLIB_ERROR_RACE = 4,      /* a copy and a job in flight on the same bytes */
  HWLIB_ERROR_UNWRITTEN = 5, /* a read of local memory that nothing has written */
  HWLIB_ERROR_TOKEN = 6,     /* a wait for a token that is not in flight */
  HWLIB_ERROR_STEP = 7,      /* a step, slot or descriptor kind that does not fit: a damaged plan */
  HWLIB_ERROR_HARDWARE = 8,  /* whatever else the hardware reports */
};

/* Where one side of a copy lies. */
enum {
  HWLIB_LOCAL_ACTIVATIONS = 0,
  HWLIB_LOCAL_WEIGHTS = 1,
  HWLIB_MAIN = 2, /* RAM or flash, wherever the host can point */
};
typedef struct {
  uint8_t memory;    /* one of the above */
  uintptr_t address; /* bytes from the start of a local memory; a pointer for HWLIB_MAIN */
} hwlib_place_t;

typedef uint32_t hwlib_token_t;

typedef enum {
  HWLIB_CONV2D = 0,
  HWLIB_DEPTHWISE_CONV2D = 1,
  HWLIB_DENSE = 2,
  HWLIB_ADD = 3,
  HWLIB_POOL2D = 4,
  HWLIB_RESHAPE = 5,
  HWLIB_TRANSPOSE = 6,
  HWLIB_SOFTMAX = 7,
  HWLIB_MUL = 8,
  HWLIB_LOOKUP = 9,
  HWLIB_MATMUL = 10,
  HWLIB_RESIZE = 11,
  HWLIB_CONCAT = 12,
  HWLIB_SLICE = 13,
  HWLIB_PAD = 14,
  HWLIB_ORDER = 15,       /* whole layers: hwlib_whole_layer_t */
  HWLIB_GATHER = 16,
  HWLIB_SUPPRESSION = 17,
} hwlib_kind_t;

/* The arithmetic of a layer: how a sum is scaled to the output (see hwlib_scale_t), and how an
 * average is rounded. A region's layers all have the same one. */
enum {
  HWLIB_ROUND_UPWARD = 0, /* TVM's: once, halves towards plus infinity, in 64 bits */
  HWLIB_ROUND_TFLITE = 1, /* TFLite's reference kernels: twice, in 32 bits */
};

/* What every layer descriptor starts with. */
typedef struct {
  uint16_t id;      /* number of the layer in the model, from 0 */
  uint8_t kind;     /* hwlib_kind_t */
  uint8_t rounding; /* HWLIB_ROUND_... */
} hwlib_layer_t;

typedef struct {
  uint32_t height, width, channels;
} hwlib_shape_t;

/* scale(value) = value * 2^left * multiplier / 2^right, rounded (>> is an arithmetic shift):
 * HWLIB_ROUND_UPWARD
 *   v = (int64_t)value * 2^left * multiplier;  (v + 2^(right - 1)) >> right
 *   v wraps in 64 bits; the 64-bit result is clamped, without truncation to 32 bits before.
 * HWLIB_ROUND_TFLITE
 *   u = (int32_t)(value * 2^left), which wraps
 *   h = ((int64_t)u * multiplier + 2^30) >> 31
 *   h / 2^(right - 31) to the nearest integer, halves away from zero
 * multiplier is 0 or 2^30 .. 2^31 - 1 (of a sum of a pool2d, 2^29 and more); left is 0..31, right 1..62 (TFLITE: 31..62); a multiplier of
 * 0 gives 0. */
typedef struct {
  int32_t multiplier;
  uint8_t left, right;
} hwlib_scale_t;

/* The parameters of one output channel, 12 bytes, in local weight memory beside the weights.
 * bias holds the model's bias and the folded zero-point sums: -ifm_zero_point *
 * sum(weights - weight_zero_point). */
typedef struct {
  int32_t bias;
  int32_t multiplier;
  uint8_t left, right;
  uint16_t reserved;
} hwlib_params_t;

/* conv2d, depthwise_conv2d and dense. For each output channel k
 *   sum = bias[k] + sum over the window of ifm * (weights - weight_zero_point)
 *   ofm = clamp(scale(sum, k) + ofm_zero_point, act_min, act_max)
 * where padding reads as ifm_zero_point and sums wrap in 32 bits. Dense is a convolution of 1 x 1
 * over the pixels of one row: its vectors.
 * Weights: [k][fy][fx][c] for a tile (depthwise: [k][fy][fx]), `weight_bits` wide, two's complement,
 * the lowest bits first; each output channel starts on a byte.
 * Several jobs may share the sum: each sums over a slice of the input channels (not of depthwise_conv2d), or over a
 * part of the kernel where the accelerator has KERNEL_PARTS of the kind, and passes what it has so far on in psum. */
typedef struct {
  hwlib_layer_t layer;
  hwlib_shape_t ifm, ofm; /* of the whole layer */
  uint8_t kernel_h, kernel_w;     /* of the whole layer: a tile has its own */
  uint8_t stride_h, stride_w;
  uint8_t dilation_h, dilation_w; /* rows and columns from one element of the window to the next, at least 1 */
  uint8_t pad_top, pad_left, pad_bottom, pad_right; /* of the whole layer */
  uint8_t weight_bits;                              /* 8, 4 or 2 */
  int8_t ifm_zero_point, weight_zero_point, ofm_zero_point;
  int8_t act_min, act_max;
} hwlib_conv2d_t;

/* sum = ifm_scale(ifm - ifm_zero_point) + ifm2_scale(ifm2 - ifm2_zero_point); with subtract 1 the first term less the
 * second, with subtract 2 the second less the first
 *   HWLIB_ROUND_UPWARD   ofm = clamp(sum + ofm_zero_point, act_min, act_max); sum_scale is not read
 *   HWLIB_ROUND_TFLITE   ofm = clamp(sum_scale(sum) + ofm_zero_point, act_min, act_max)
 * (TFLite's inputs are scaled to half of the range of the larger one, and shifted left by 20.) */
typedef struct {
  hwlib_layer_t layer;
  hwlib_shape_t shape;
  hwlib_scale_t ifm_scale, ifm2_scale, sum_scale;
  int8_t ifm_zero_point, ifm2_zero_point, ofm_zero_point;
  int8_t act_min, act_max;
  uint8_t subtract;  /* 0, 1 or 2 */
  uint8_t broadcast; /* 0 or 1: ifm2 is one pixel, which is read again for each pixel of ifm */
} hwlib_add_t;

/* product = (ifm - ifm_zero_point) * (ifm2 - ifm2_zero_point)
 *   ofm = clamp(scale(product) + ofm_zero_point, act_min, act_max)
 * The product, of 16 bits and a sign, is scaled as it is, by the layer's rounding. */
typedef struct {
  hwlib_layer_t layer;
  hwlib_shape_t shape;
  hwlib_scale_t scale;
  int8_t ifm_zero_point, ifm2_zero_point, ofm_zero_point;
  int8_t act_min, act_max;
  uint8_t broadcast; /* as of hwlib_add_t */
} hwlib_mul_t;

/* A matrix product of two activations, item by item: ifm2 has ofm.channels vectors of ifm.channels values for each
 * item, which are multiplied with each of the item's vectors of ifm.
 *   sum = sum over c of (ifm[c] - ifm_zero_point) * (ifm2[k][c] - ifm2_zero_point), which wraps in 32 bits
 *   ofm[k] = clamp(scale(sum) + ofm_zero_point, act_min, act_max)
 * A vector of ifm is a row of one pixel of the layer: ifm.height is the items times their vectors, ifm2.height
 * the items. */
typedef struct {
  hwlib_layer_t layer;
  hwlib_shape_t ifm, ifm2, ofm; /* of the whole layer */
  hwlib_scale_t scale;
  int8_t ifm_zero_point, ifm2_zero_point, ofm_zero_point;
  int8_t act_min, act_max;
} hwlib_matmul_t;

enum { HWLIB_POOL_AVG = 0, HWLIB_POOL_MAX = 1, HWLIB_POOL_SUM = 2 };

/* Maximum, average or sum of a window; padding counts as -128 for a maximum and as 0 for a sum.
 *   average = sum / count, truncated towards zero (UPWARD), or to the nearest integer with halves
 *   away from zero (TFLITE); count is kernel_h * kernel_w with count_include_pad, else the window's
 *   elements inside the input, or 1 where there are none
 *   ofm = clamp(scale(average - ifm_zero_point) + ofm_zero_point, act_min, act_max)
 * A maximum is only clamped: its scale and zero points are not read.
 * (An average that is not rescaled has multiplier 2^30, left 1, right 31, zero points 0.)
 * A sum is
 *   ofm = clamp(scale(sum + offset) + ofm_zero_point, act_min, act_max)
 * without ifm_zero_point, which is in the offset; its multiplier is 0 or 2^29 .. 2^31 - 1, and sum + offset
 * fits 32 bits. TFLite's mean is such a sum: the division is in the multiplier. */
typedef struct {
  hwlib_layer_t layer;
  hwlib_shape_t ifm, ofm; /* of the whole layer */
  uint8_t kernel_h, kernel_w, stride_h, stride_w;
  uint8_t pad_top, pad_left, pad_bottom, pad_right; /* of the whole layer */
  uint8_t mode, count_include_pad;
  int8_t ifm_zero_point, ofm_zero_point;
  hwlib_scale_t scale;
  int8_t act_min, act_max;
  int32_t offset; /* of a sum */
} hwlib_pool2d_t;

/* Softmax of each row of `channels` values; output scale 1/256, zero point -128. TFLITE only. All in
 * fixed point; Qi has i bits before the point and 31 - i behind it, in an int32. x * y is
 * ((int64_t)x * y + 2^30) >> 31 on the raw integers, which makes a Qi and a Qj a Q(i + j); RN(x, n) is
 * x / 2^n to the nearest, halves away from zero; SL(x, n) is x * 2^n, limited to int32.
 *
 * For each value, d = value - the row's maximum. Below diff_min it counts as nothing and its output
 * is -128. Else, with e = exp(scale(d)), a Q0:
 *   sum = the sum of RN(e, 12) over the row, a Q12
 *   n = leading zeros of sum as a uint32_t;  s = reciprocal(sum * 2^n - 2^31), a Q0
 *   ofm = min(127, RN(s * e, 35 - n) - 128)
 * scale's rounding is TFLITE's with right = 31: one rounding.
 *
 * exp(a), of a Q5 a <= 0, a Q0 (2^31 - 1 stands for 1):
 *   exp(0) = 2^31 - 1
 *   r = (a & (2^24 - 1)) - 2^24              in [-1/4, 0), and a - r is a multiple of 1/4
 *   t = SL(r, 5) + 2^28                      a Q0, x + 1/8
 *   p = RN((RN(t*t*t*t, 2) + t*t*t) * 715827883 + t*t, 1)    t*t*t*t is (t*t) * (t*t), t*t*t (t*t) * t
 *   y = 1895147668 + 1895147668 * (t + p)    1895147668 is exp(-1/8)
 *   for k = -2 .. 4: where bit 26 + k of r - a is set, y = y * E[k], E[k] being exp(-2^k) as a Q0:
 *     1672461947 1302514674 790015084 290630308 39332535 720401 242
 *
 * reciprocal(a), of a Q0 a in [0, 1): 1 / (1 + a), a Q0:
 *   h = (a + (2^31 - 1) + 1) / 2             in 64 bits: half of the denominator
 *   x = 1515870810 + h * -1010580540         a Q2: 48/17 - 32/17 h
 *   three times: x = x + SL(x * (2^29 - h * x), 2)
 *   the result is SL(x, 1) */
typedef struct {
  hwlib_layer_t layer;
  hwlib_shape_t shape;
  hwlib_scale_t scale;
  int32_t diff_min; /* 0 or less */
} hwlib_softmax_t;

/* Any function of one byte, by table: ofm = tables[ifm], the bytes of inputs being numbers from 0 to 255, whether
 * they stand for int8 or uint8. With by_channel, ofm = tables[256 * channel + ifm]: `shape.channels` tables, one
 * after the other. The tables lie in main memory, constant, like the descriptor. `rounding` is not read. */
typedef struct {
  hwlib_layer_t layer;
  hwlib_shape_t shape;
  const uint8_t *tables;
  uint8_t by_channel; /* 0 or 1 */
} hwlib_lookup_t;

/* One tile of a layer: what a job works on, in local memory. Addresses are byte offsets: weights
 * and params in local weights, the rest in local activations. Rows and pixels may be strided;
 * channels are dense. The job pads: ifm_h x ifm_w are the rows and columns that are there, and
 * pad_* say how many more the window sees (a tile inside the layer has none on its inner sides).
 * Where all windows of a tile lie in padding only, above, below or beside the input, that is all in
 * pad_top or pad_left, and behind it one row or column is there that no window reaches.
 * kernel_h x kernel_w are the rows and columns of the kernel that a job of conv2d, depthwise_conv2d or dense sums
 * over: all of the layer's, or a part of them. For a part, ifm, ifm_h, ifm_w and pad_* are those of a layer with this
 * kernel, and weights are the part's alone: the job does not know where in the kernel it lies.
 * Where the accelerator has PACKED_ROWS, the rows of a window's input may overlap: ifm_row is smaller than what ifm_w
 * pixels take, and a row begins inside the one above it. So a job takes all rows of an image as one, with what lies
 * between them: output q reads pixel q + k * (ifm_row / ifm_pixel) + l at the place (k, l) of its window. Or height and
 * width of the input are exchanged: ifm_row is smaller than ifm_pixel, and rows lie among the pixels of others.
 * Elsewhere they never do.
 * For add, mul and lookup, ifm_* give one linear run: ifm_h = 1, ifm_w elements of 1 channel; ifm2 and ofm are
 * as long, and the strides and ofm_* are not read. For lookup with by_channel, ifm_w pixels of all ifm_c channels,
 * and for softmax ifm_w rows of ifm_c values, all dense: ifm_h = 1, ofm_* as ifm_*. For add and mul with broadcast
 * the same, with ifm_c all channels or 1, and ifm2 is ifm_c values: one for each channel, or one for all elements.
 * For matmul, ifm_w vectors of ifm_c values of one item, all dense: ifm_h = ofm_h = 1, ofm_w = ifm_w; ifm2 is
 * [ofm_c][ifm_c], dense, and the strides are not read. */
typedef struct {
  uint32_t ifm, ifm2, ofm; /* ifm2: add, mul and matmul only */
  uint32_t psum;           /* int32 [ofm_h][ofm_w][ofm_c], 4-byte aligned, unless FIRST and LAST */
  uint32_t weights, params;
  uint32_t ifm_row, ofm_row;       /* bytes from one row to the next */
  uint32_t ifm_pixel, ofm_pixel;   /* bytes from one pixel to the next */
  uint32_t ifm_h, ifm_w, ifm_c;    /* ifm_c: the input channels that this job sums over */
  uint32_t ofm_h, ofm_w, ofm_c;
  uint8_t pad_top, pad_left, pad_bottom, pad_right;
  uint8_t kernel_h, kernel_w; /* conv2d, depthwise_conv2d and dense only */
  uint8_t flags; /* HWLIB_TILE_...; only jobs that share a sum are anything but FIRST and LAST */
} hwlib_tile_t;

enum {
  HWLIB_TILE_FIRST = 1, /* the first job of a sum: start from the bias, not from psum */
  HWLIB_TILE_LAST = 2,  /* the last: scale and write ofm; otherwise write psum */
};

/* What a whole layer reads or writes in main memory. */
typedef struct {
  const hwlib_place_t *place; /* the start of the space that it lies in */
  uint32_t offset, bytes;
  uint8_t writes;
} hwlib_operand_t;

static inline uintptr_t hwlib_operand_address(const hwlib_operand_t *operand)
{
  return operand->place->address + operand->offset;
}

/* A layer that runs as a whole, from main memory to main memory: of the kinds order, gather and suppression, on an
 * accelerator that has them, or of any kind on one with a vendor's library. Only on chips (hwlib_lanes.h).
 * `numbers`, int32, and the operands behind the output (its workspace, which it may write, last):
 *   order        type (0 int8, 1 uint8, 2 int32, 3 float32), before, extent, after, count, descending; the elements
 *     ofm, int32, has for each row of [before][extent][after] the places of the first `count` elements in their
 *     order, equal ones in the order of their places. A NaN is beyond the infinity of its sign, -0 is 0.
 *   gather       bytes of an element, before, extent, after, count; the elements, int32 places
 *     ofm = elements[before][place][after], place being limited to 0 .. extent - 1
 *   suppression  batches, boxes, values, top_k, coord_start, score_index, id_index, force_suppress,
 *                invalid_to_bottom, most, bits of the float threshold; float boxes, int32 counts, workspace;
 *                or, for places of boxes in place of boxes, boxes, counts, int32 indices, workspace
 *     as TVM's vision.non_max_suppression: hwlib_whole_layer has it in C. */
typedef struct {
  hwlib_layer_t layer;
  int32_t (*start)(hwlib_token_t *token); /* of a library: calls its function */
  const hwlib_operand_t *operands;        /* its output first; a library's constants are not among them */
  uint16_t operand_count;
  uint32_t cycles;        /* what it takes */
  const int32_t *numbers; /* not of a library */
} hwlib_whole_layer_t;

/* Computes an order, gather or suppression: in projects for accelerators that have one. For a HAL whose accelerator
 * runs this C, or has nothing faster. LIMIT for another kind. */
hwlib_status_t hwlib_whole_layer(const hwlib_whole_layer_t *layer);

typedef struct {
  const hwlib_layer_t *layer; /* the descriptor that layer->kind says */
  const hwlib_tile_t *tile;   /* NULL for a whole layer */
} hwlib_job_t;

/* ---------------------------------------------------------------- the eight functions
 *
 * HWlib calls them from one thread and never from an interrupt. It passes a HAL nothing that breaks the
 * `Accelerator` that the model was compiled for: a HAL may trust its arguments, or check them and return
 * what it finds. After a status other than HWLIB_OK the region ends: HWlib calls hwlib_hal_init at once, and
 * from then on the accelerator writes nothing to main memory.
 * `python -m byoc_hw hal-test` checks all that is said here; error returns where asked with --refusals. */

/* Bring the accelerator to a known state: engines idle, no tokens.
 *   called     at the start of the first region of an inference, before any other function, and of all others but
 *              those that the region before has started copies for; inside a region after a failure
 *   in flight  anything: it is ended or given up, and writes nothing from then on, also where init itself
 *              returns an error; its tokens are gone
 *   blocks     until the engines are idle; must be cheap when nothing is in flight
 *   keeps      nothing in local memory, which a region fills anew. Without it, from one region to the next and while
 *              the program does something else, local memory keeps its bytes, and copies of constants may be in
 *              flight */
hwlib_status_t hwlib_hal_init(void);

/* Start a copy of `bytes` bytes, at least 1. One side is local, the other HWLIB_MAIN.
 *   called     by steps of a plan, inside a region; and by a debug build with HWLIB_TRACE, which copies the outputs
 *              of jobs from local activations, after an init also before the first region
 *   alignment  addresses, strides and bytes are multiples of the accelerator's dma_alignment; where that is
 *              1, any byte. Copies never overlap themselves. A tensor may end inside the last word of a copy: on
 *              both sides the word's other bytes are nobody's, and on the way out nothing may have written them.
 *   in flight  jobs, on other bytes: the plan waits where bytes are shared; and other copies, which follow one
 *              another, so that one may read or write over what an earlier one wrote or read, in main memory
 *              too. The host leaves main memory on both sides of a copy as it is until the copy was waited
 *              for. Caches are the HAL's business: what the host wrote before the call is copied, what comes
 *              is seen after the wait.
 *   blocks     not, unless the engine's queue is full: then until it has room. Any number of copies may be
 *              started and only the last waited for.
 *   *token     not 0, and different from those in flight; not written unless HWLIB_OK is returned
 *   errors     ADDRESS (beyond the local memory, not one local side), ALIGNMENT, RACE, UNWRITTEN, HARDWARE */
hwlib_status_t hwlib_hal_copy_1d(hwlib_place_t target, hwlib_place_t source, uint32_t bytes,
                                 hwlib_token_t *token);

/* Start a copy of `rows` rows of `bytes` bytes, `*_stride` bytes apart, each at least 1; of a single row the
 * strides say nothing. Bytes between the rows of the target stay as they are. As hwlib_hal_copy_1d. */
hwlib_status_t hwlib_hal_copy_2d(hwlib_place_t target, uint32_t target_stride, hwlib_place_t source,
                                 uint32_t source_stride, uint32_t bytes, uint32_t rows,
                                 hwlib_token_t *token);

/* Return when the copy is done (polled or by interrupt): its last byte is where the host or a job, which may
 * be started at once, finds it, and so are the bytes of all copies that were started before it.
 *   called     once or never for a token, in any order
 *   blocks     until then
 *   errors     TOKEN (not in flight), and any failure of the copy since its start */
hwlib_status_t hwlib_hal_copy_wait(hwlib_token_t token);

/* Start a job on a tile, all of it in local memory; or, where job->tile is NULL, a whole layer, in main memory.
 *   called     by steps of a plan, inside a region; what it reads is there
 *   alignment  psum and params are multiples of 4; the other addresses and all strides are any byte
 *   in flight  as hwlib_hal_copy_1d; jobs follow one another, so that one may read what an earlier one
 *              writes. *job itself may be gone when this returns; the layer and the tile that it points to
 *              stay until the job was waited for. A whole layer is in the same queue, beside copies on other
 *              bytes; until it was waited for, the host leaves its operands in main memory as they are. Caches are
 *              the HAL's business there, as for copies.
 *   blocks     not, unless the array's queue is full
 *   *token     as hwlib_hal_copy_1d; a copy and a job may have the same
 *   errors     LIMIT (a kind, rounding, kernel, stride, weight width, scale or geometry that the array
 *              lacks), ADDRESS, ALIGNMENT, RACE, UNWRITTEN, HARDWARE */
hwlib_status_t hwlib_hal_job_start(const hwlib_job_t *job, hwlib_token_t *token);

/* Return when the job is done (polled or by interrupt), with all jobs that were started before it: its output
 * is where a copy or another job, and of a whole layer the host, finds it. As hwlib_hal_copy_wait. */
hwlib_status_t hwlib_hal_job_wait(hwlib_token_t token);

/* A free-running count of accelerator cycles, for profiles: never goes backwards, may stand still.
 *   called     by the program around the model, at any time; does not block and disturbs nothing */
uint64_t hwlib_hal_cycles(void);

/* The steps that follow belong to this layer. For traces and profiles; may do nothing.
 *   called     where a layer begins, with anything in flight; does not block and disturbs nothing */
void hwlib_hal_mark(uint16_t layer);

/* ---------------------------------------------------------------- optional: chips of several accelerators, polls
 *
 * There the core drives the accelerators without waiting for one of them, see hwlib_lanes.h. Where a HAL has not both
 * of the first two, HWlib waits with hwlib_hal_copy_wait and hwlib_hal_job_wait, and the other accelerators get no new
 * work meanwhile; a poll is then a single step. The functions above are called as they are for a single accelerator. */

/* Whether the copy is done, as hwlib_hal_copy_wait means it: *done is 1 or 0.
 *   called     in place of the wait, any number of times as long as *done is 0; with 1 it was waited for
 *   blocks     not
 *   errors     as hwlib_hal_copy_wait */
hwlib_status_t hwlib_hal_copy_done(hwlib_token_t token, uint8_t *done);

/* Whether the job is done, as hwlib_hal_copy_done. */
hwlib_status_t hwlib_hal_job_done(hwlib_token_t token, uint8_t *done);

/* The core has nothing to do until an operation ends that it has asked for, of any accelerator. May wait for an
 * interrupt, or do nothing.
 *   called     inside a region that the program waits for, again and again; each time it asks again before
 *   blocks     at the longest until an operation of this accelerator that it has asked for ends; not without one */
void hwlib_hal_idle(void);

/* ---------------------------------------------------------------- optional: events between engines
 *
 * On a chip whose description has `events`, engines order each other, and the core only queues what they do: a copy or
 * a job that needs another one is given to its engine at once, behind an await. An event is a counter of 16 bits or
 * more, such as a semaphore, or a word of memory that linked descriptors of a DMA count up and compare. There are as
 * many as the chip says, numbered from 0, and each engine of each accelerator that reaches them may signal and await
 * each of them, its own signals too. An accelerator that reaches them has both functions.
 *
 * An await and a signal take a place in the queue of their engine, as a copy or a job does, and are done in their turn:
 * so an await holds all that the engine is given after it, and nothing that it was given before. They have no token,
 * and nobody waits for them: they are over when what the engine was given after them has ended, and a signal also when
 * somebody has awaited it. What an engine writes before it signals is there for all that an engine does after it has
 * awaited that: main memory and shared local memory, through caches and write buffers.
 *
 * An event only counts up, so that it may be awaited again and by several. HWlib gives an engine an await only after it
 * has given their engines the signals that it is for: engines never wait for each other in a circle, nor for the core,
 * and a function that finds a queue full may wait. Signals of one event by several engines come one after the other.
 * hwlib_hal_init ends or gives up what an await holds, and sets all events that the accelerator reaches to 0. All that
 * reach them are initialised before the first is given anything, so the next region, and inference, begins with 0.
 *
 * An engine that fails does nothing more, signals included, until hwlib_hal_init. Each wait and question for what it was
 * given later returns the failure: the core, which waits for the last operation of each engine, finds it, and ends all
 * engines. Where engines can fail, a wait for room in a queue behind an await ends as well: with HARDWARE, after some
 * time of the HAL's choice. */

/* The engines of an accelerator. */
enum {
  HWLIB_ENGINE_DMA = 0,   /* copies */
  HWLIB_ENGINE_ARRAY = 1, /* jobs and whole layers */
};

/* When the engine has done all that it was given before, count `event` up by 1.
 *   called     by steps of a plan, inside a region, at most 65535 times for an event
 *   blocks     not, unless the engine's queue is full
 *   errors     STEP (no such engine or event), HARDWARE */
hwlib_status_t hwlib_hal_signal(uint8_t engine, uint8_t event);

/* Do what the engine is given after this when `event` is `value` or more, 1 at least.
 *   called     by steps of a plan, inside a region, when `value` signals of the event have been called
 *   blocks     not, unless the engine's queue is full
 *   errors     STEP (no such engine or event, a value that was not signalled), HARDWARE */
hwlib_status_t hwlib_hal_await(uint8_t engine, uint8_t event, uint16_t value);

#ifdef __cplusplus
}
#endif

#endif
