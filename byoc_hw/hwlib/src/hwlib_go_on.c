/* The begin of a region that the one before it has started copies for. */
#include "hwlib_steps.h"

hwlib_status_t hwlib_go_on(hwlib_region_t *region, const hwlib_plan_t *plan, const uintptr_t *starts,
                           hwlib_made_tile_t *tiles, const uint16_t *end)
{
  const int ended = region->next == end;
  region->plan = plan;
  region->next = plan->steps;
  region->starts = starts;
  region->tiles = tiles;
  region->layer = plan->layer;
  return ended ? hwlib_wait(region) : hwlib_failed(HWLIB_ERROR_STEP);
}
