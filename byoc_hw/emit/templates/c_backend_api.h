/* In place of TVM's header: see c_runtime_api.h. No workspace is allocated and nothing is started in
 * parallel, so nothing is declared. */
#ifndef BYOC_HW_TVM_C_BACKEND_API_H
#define BYOC_HW_TVM_C_BACKEND_API_H

#include "c_runtime_api.h"

#endif
