/* Start-up for link.ld, instead of the C library's: stack, .data, .bss, constructors, main, exit. */
  .section .start, "ax"
  .globl _start
_start:
  .option push
  .option norelax
  la gp, __global_pointer$
  .option pop
  la sp, __stack_top
  la tp, __tls_base

  la a0, __data_start
  la a1, __data_end
  la a2, __data_source
1:
  bgeu a0, a1, 2f
  lw t0, 0(a2)
  sw t0, 0(a0)
  addi a0, a0, 4
  addi a2, a2, 4
  j 1b

2:
  la a0, __bss_start
  la a1, __bss_end
3:
  bgeu a0, a1, 4f
  sw zero, 0(a0)
  addi a0, a0, 4
  j 3b

4:
  la a0, __app_bss_start
  la a1, __app_bss_end
5:
  bgeu a0, a1, 6f
  sw zero, 0(a0)
  addi a0, a0, 4
  j 5b

6:
  la s0, __init_array_start
  la s1, __init_array_end
7:
  bgeu s0, s1, 8f
  lw t0, 0(s0)
  jalr t0
  addi s0, s0, 4
  j 7b

8:
  tail start_main
