/* What follows a failure. */
#include "hwlib_steps.h"

hwlib_status_t hwlib_failed(hwlib_status_t status)
{
  (void)hwlib_hal_init(); /* the first failure is the one that is reported */
  return status;
}
