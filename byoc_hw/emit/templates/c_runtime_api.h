/* In place of TVM's runtime headers: what the C that TVM generates asks of them, which is next to
 * nothing. The code runs without TVM's runtime. */
#ifndef BYOC_HW_TVM_C_RUNTIME_API_H
#define BYOC_HW_TVM_C_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#ifndef TVM_DLL
#define TVM_DLL
#endif

#endif
