"""Pictures as data: each module turns numbers into a Scene, templates/scene.svg.j2 draws it."""
