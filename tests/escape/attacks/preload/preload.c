/* A library that an earlier session left in the workspace: whatever loads it on the host has
 * been taken over. It says so by the file that RF_MARKER names. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void take_over(void)
{
    const char *marker = getenv("RF_MARKER");
    int fd = marker ? open(marker, O_WRONLY | O_CREAT, 0644) : -1;

    if (fd >= 0)
        close(fd);
}
