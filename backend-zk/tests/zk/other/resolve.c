/* Lets the name `moves.test` have the address that the file $LOCKWELL_NAME_IS says, each time that it is looked up. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    resolver *real = (resolver *)dlsym(RTLD_NEXT, "getaddrinfo");
    char address[64] = "";
    if (node && strcmp(node, "moves.test") == 0) {
        FILE *file = fopen(getenv("LOCKWELL_NAME_IS"), "r");
        if (!file || !fgets(address, sizeof address, file)) return EAI_NONAME;
        fclose(file);
        node = address;
    }
    return real(node, service, hints, found);
}
